"""Rules: links with which one person decides one human step. They are derived, never stored."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from hmac import compare_digest

import msgspec
from msgspec import Struct

from penstock.errors import InvalidToken
from penstock.model.human import HumanSpec
from penstock.model.message import Moment
from penstock.rules.human_spec import compute_digest

MAC_BYTES = 16
MAX_LINK_LENGTH = 2_000


class HumanLink(Struct, frozen=True, array_like=True):
    """The content of a link: the step, its place, the person and the expiry."""

    tenant: str
    scope: str
    id: int
    person: str
    expires_at: Moment


class HumanLinks:
    """Makes and reads links. A link is valid for the options that it was made for."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret[:32]

    def make(self, link: HumanLink, spec: HumanSpec) -> str:
        body = msgspec.json.encode(link)
        return encode_token(self.sign(body, spec) + body)

    def sign(self, body: bytes, spec: HumanSpec) -> bytes:
        keyed = blake2s(key=self.secret, digest_size=MAC_BYTES, person=b"human")
        keyed.update(compute_digest(spec).encode())
        keyed.update(body)
        return keyed.digest()

    def read(self, token: str) -> HumanLink:
        """Returns what the link says. It is not to be trusted before `verify`."""
        try:
            return msgspec.json.decode(split_token(token)[1], type=HumanLink)
        except (ValueError, msgspec.MsgspecError):
            raise InvalidToken("this link is not valid") from None

    def verify(self, token: str, spec: HumanSpec) -> None:
        mac, body = split_token(token)
        if not compare_digest(mac, self.sign(body, spec)):
            raise InvalidToken("this link is not valid")

    def make_nonce(self, token: str, seed: str) -> str:
        """Ties the form of a page to the cookie that came with it."""
        text = f"{token} {seed}".encode()
        return blake2s(text, key=self.secret, digest_size=MAC_BYTES, person=b"nonce").hexdigest()


def encode_token(whole: bytes) -> str:
    return urlsafe_b64encode(whole).decode().rstrip("=")


def split_token(token: str) -> tuple[bytes, bytes]:
    if len(token) > MAX_LINK_LENGTH or not token.isascii():
        raise InvalidToken("this link is not valid")
    whole = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    # Other characters are skipped, but each link has one spelling, by which it is limited.
    if encode_token(whole) != token:
        raise InvalidToken("this link is not valid")
    return whole[:MAC_BYTES], whole[MAC_BYTES:]
