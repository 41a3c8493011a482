"""Signed identities: tickets of event streams and sessions of the dashboard.

They are valid on every server of the store, and none of them is stored.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from hmac import compare_digest

import msgspec
from msgspec import Struct

from penstock.errors import Unauthenticated
from penstock.http.auth.identity import Identity
from penstock.model.message import MICROS_PER_SECOND, Moment

PREFIX = b"pst_"
SESSION_PREFIX = b"pss_"
LIFETIME_S = 60
SESSION_LIFETIME_S = 12 * 3_600
MAC_BYTES = 16


class SignedIdentity(Struct, frozen=True, omit_defaults=True):
    identity: Identity
    expires_at: Moment


class IdentitySigner:
    """Signs who a caller is, for a limited time and one purpose."""

    def __init__(
        self, secret: bytes, prefix: bytes, purpose: bytes, lifetime: int, advice: str
    ) -> None:
        self.keyed = blake2s(key=secret[:32], digest_size=MAC_BYTES, person=purpose)
        self.prefix = prefix
        self.purpose = purpose.decode()
        self.lifetime = lifetime
        self.advice = advice

    def issue(self, identity: Identity, now: Moment) -> tuple[str, Moment]:
        signed = SignedIdentity(identity, now + self.lifetime * MICROS_PER_SECOND)
        body = msgspec.json.encode(signed)
        token = self.prefix + urlsafe_b64encode(self.sign(body) + body)
        return token.decode(), signed.expires_at

    def sign(self, body: bytes) -> bytes:
        keyed = self.keyed.copy()
        keyed.update(body)
        return keyed.digest()

    def read(self, token: str) -> Identity:
        return self.verify(token).identity

    def check_fresh(self, token: str, now: Moment) -> None:
        if now >= self.verify(token).expires_at:
            raise Unauthenticated(f"the {self.purpose} has expired; {self.advice} a new one")

    def verify(self, token: str) -> SignedIdentity:
        invalid = f"invalid {self.purpose}; {self.advice} one"
        try:
            whole = urlsafe_b64decode(token.removeprefix(self.prefix.decode()))
        except ValueError:
            raise Unauthenticated(invalid) from None
        mac, body = whole[:MAC_BYTES], whole[MAC_BYTES:]
        if not compare_digest(mac, self.sign(body)):
            raise Unauthenticated(invalid)
        return msgspec.json.decode(body, type=SignedIdentity)


def make_ticket_signer(secret: bytes) -> IdentitySigner:
    """A ticket opens event streams for LIFETIME_S, with the rights of the caller that got it."""
    return IdentitySigner(secret, PREFIX, b"ticket", LIFETIME_S, "POST /v1/events/ticket returns")


def make_session_signer(secret: bytes) -> IdentitySigner:
    """A session signs a browser in, with the rights that its key or token has at the moment."""
    return IdentitySigner(secret, SESSION_PREFIX, b"session", SESSION_LIFETIME_S, "sign in for")
