"""Tickets for event streams: signed, short-lived, and valid on every server of the store."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from hmac import compare_digest

import msgspec
from msgspec import Struct

from penstock.errors import Unauthenticated
from penstock.http.auth.identity import Identity
from penstock.model.message import Moment

PREFIX = b"pst_"
LIFETIME_S = 60
MAC_BYTES = 16
MICROS_PER_SECOND = 1_000_000
INVALID_TICKET = "invalid ticket; POST /v1/events/ticket gives one"


class StreamTicket(Struct, frozen=True, omit_defaults=True):
    identity: Identity
    expires_at: Moment


class StreamTickets:
    """A ticket opens event streams for LIFETIME_S, with the rights of the caller that got it."""

    def __init__(self, secret: bytes) -> None:
        self.keyed = blake2s(key=secret[:32], digest_size=MAC_BYTES, person=b"ticket")

    def issue(self, identity: Identity, now: Moment) -> tuple[str, Moment]:
        ticket = StreamTicket(identity, now + LIFETIME_S * MICROS_PER_SECOND)
        body = msgspec.json.encode(ticket)
        return (PREFIX + urlsafe_b64encode(self.sign(body) + body)).decode(), ticket.expires_at

    def sign(self, body: bytes) -> bytes:
        keyed = self.keyed.copy()
        keyed.update(body)
        return keyed.digest()

    def read(self, token: str) -> Identity:
        return self.verify(token).identity

    def check_fresh(self, token: str, now: Moment) -> None:
        if now >= self.verify(token).expires_at:
            raise Unauthenticated("the ticket has expired; POST /v1/events/ticket gives a new one")

    def verify(self, token: str) -> StreamTicket:
        try:
            whole = urlsafe_b64decode(token.removeprefix(PREFIX.decode()))
        except ValueError:
            raise Unauthenticated(INVALID_TICKET) from None
        mac, body = whole[:MAC_BYTES], whole[MAC_BYTES:]
        if not compare_digest(mac, self.sign(body)):
            raise Unauthenticated(INVALID_TICKET)
        return msgspec.json.decode(body, type=StreamTicket)
