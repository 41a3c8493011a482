"""Rules: tokens of callback URLs, which let their holder send one signal."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from hmac import compare_digest
from hmac import new as make_hmac
from typing import NamedTuple

from penstock.errors import NotFound
from penstock.model.message import Moment

VERSION = 1
DIGEST_BYTES = 16


class CallbackClaims(NamedTuple):
    """The content of a token, which allows one signal of this name for this message."""

    id: int
    name: str
    expires_at: Moment


def make_token(secret: bytes, claims: CallbackClaims) -> str:
    text = f"{VERSION}.{claims.id}.{claims.expires_at}.{claims.name}".encode()
    return encode(sign(secret, text) + text)


def encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def read_token(secret: bytes, token: str) -> CallbackClaims:
    """Raises NotFound for a token that was not made with this secret."""
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        # Other characters are skipped, but each token has one spelling, by which it is limited.
        if encode(raw) != token:
            raise ValueError("not the spelling of make_token")
        digest, text = raw[:DIGEST_BYTES], raw[DIGEST_BYTES:]
        version, id, expires_at, name = text.decode().split(".", 3)
        claims = CallbackClaims(int(id), name, int(expires_at))
        known = int(version) == VERSION
    except (ValueError, UnicodeDecodeError):
        raise NotFound("no such callback URL") from None
    if not known or not compare_digest(digest, sign(secret, text)):
        raise NotFound("no such callback URL")
    return claims


def sign(secret: bytes, text: bytes) -> bytes:
    return make_hmac(secret, b"callback." + text, sha256).digest()[:DIGEST_BYTES]
