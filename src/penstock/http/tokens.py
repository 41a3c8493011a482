"""Lock tokens and cursors that only this store's servers can have given."""

from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2s
from hmac import compare_digest

from penstock.errors import Forbidden, InvalidToken
from penstock.ticket import Lock

# Of a token the first part says that we gave it, the second to whom.
OURS, THEIRS = 6, 12
# The first part, as it is written.
SHOWN, LENGTH = OURS * 2, (OURS + THEIRS) * 2
LONGEST_NUMBER = 19


class Tokens:
    """`id.fence.mac`: the same on every server of a store, and of use to its subject alone."""

    def __init__(self, secret: bytes) -> None:
        self.secret = blake2s(b"penstock", key=secret[:32]).digest()
        self.key_of = lru_cache(10_000)(self._key_of)

    def _key_of(self, subject: str) -> bytes:
        return blake2s(subject.encode(), key=self.secret, person=b"subject").digest()

    def sign(self, id: int, fence: int, subject: str) -> str:
        text = f"{id}.{fence}"
        return f"{text}.{self.ours(text)}{self.theirs(text, subject)}"

    def ours(self, text: str) -> str:
        return blake2s(text.encode(), key=self.secret, digest_size=OURS).hexdigest()

    def theirs(self, text: str, subject: str) -> str:
        return blake2s(text.encode(), key=self.key_of(subject), digest_size=THEIRS).hexdigest()

    def read(self, token: str, subject: str) -> Lock:
        text, _, mac = token.rpartition(".")
        id, dot, fence = text.partition(".")
        if not (dot and is_number(id) and is_number(fence) and mac.isascii()):
            raise InvalidToken("the token is not of the form id.fence.mac")
        if len(mac) != LENGTH or not compare_digest(mac[:SHOWN], self.ours(text)):
            raise InvalidToken("the token was not given by this store, or was changed")
        if not compare_digest(mac[SHOWN:], self.theirs(text, subject)):
            raise Forbidden(f"the lock of message {id} is somebody else's")
        return Lock(int(id), int(fence))

    def seal(self, before: int, filter: tuple[object, ...]) -> str:
        """A cursor: where a list goes on, of use with the same filter alone."""
        return f"{before}.{self._filter_mac(before, filter)}"

    def unseal(self, cursor: str, filter: tuple[object, ...]) -> int:
        before, _, mac = cursor.partition(".")
        if not is_number(before) or not mac.isascii():
            raise InvalidToken("the cursor is not one of ours")
        if not compare_digest(mac, self._filter_mac(int(before), filter)):
            raise InvalidToken("the cursor was not given by this store for this list")
        return int(before)

    def _filter_mac(self, before: int, filter: tuple[object, ...]) -> str:
        text = repr((before, *filter)).encode()
        mac = blake2s(text, key=self.secret, digest_size=12, person=b"cursor").digest()
        return urlsafe_b64encode(mac).decode()


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
