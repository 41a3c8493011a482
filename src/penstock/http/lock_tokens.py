"""Signs and verifies lock tokens and page cursors."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2s
from hmac import compare_digest

from penstock.errors import Forbidden, InvalidToken
from penstock.model.store_types import Lock

# Lengths in bytes of the subject digest and of the MAC.
SUBJECT, MAC = 6, 12
MAX_DIGITS = 19


class HeldLock(Lock, frozen=True, gc=False):
    """A lock and the queue whose right it requires."""

    queue_id: int
    # Claimed from the dead letters, so it also requires the right to consume those.
    from_dead: bool = False


class Tokens:
    """A token is `id.fence.queue.mac`. It is valid on every server of the store, for its subject
    only. `queue` is the queue id, with a `d` for a message claimed from the dead letters."""

    def __init__(self, secret: bytes) -> None:
        self.secret = blake2s(b"penstock", key=secret[:32]).digest()
        self.keyed = blake2s(key=self.secret, digest_size=MAC)
        self.mark_of = lru_cache(10_000)(self._mark_of)

    def _mark_of(self, subject: str) -> str:
        text = subject.encode()
        return blake2s(text, key=self.secret, digest_size=SUBJECT, person=b"subject").hexdigest()

    def sign(self, lock: HeldLock, subject: str) -> str:
        dead = "d" if lock.from_dead else ""
        text = f"{lock.id}.{lock.fence}.{lock.queue_id}{dead}.{self.mark_of(subject)}"
        return text + self.compute_mac(text)

    def compute_mac(self, text: str) -> str:
        keyed = self.keyed.copy()
        keyed.update(text.encode())
        return keyed.hexdigest()

    def read(self, token: str, subject: str) -> HeldLock:
        """Verifies the MAC first, so the format needs no further check."""
        text, mac = token[: -2 * MAC], token[-2 * MAC :]
        if not token.isascii() or not compare_digest(mac, self.compute_mac(text)):
            raise InvalidToken("invalid lock token")
        id, fence, queue, mark = text.split(".")
        if mark != self.mark_of(subject):
            raise Forbidden(f"message {id} is locked by another caller")
        if queue.endswith("d"):
            return HeldLock(int(id), int(fence), int(queue[:-1]), True)
        return HeldLock(int(id), int(fence), int(queue))

    def seal_cursor(self, before: int, filter: tuple[object, ...]) -> str:
        """Signs a cursor, which is valid only with the same filter."""
        return f"{before}.{self._filter_mac(before, filter)}"

    def unseal_cursor(self, cursor: str, filter: tuple[object, ...]) -> int:
        before, _, mac = cursor.partition(".")
        if not is_number(before) or not mac.isascii():
            raise InvalidToken("invalid cursor")
        if not compare_digest(mac, self._filter_mac(int(before), filter)):
            raise InvalidToken("cursor does not belong to this list and filter")
        return int(before)

    def seal_name(self, after: str, filter: tuple[object, ...]) -> str:
        """Signs the cursor of a list that is sorted by a text."""
        return f"{self._filter_mac(after, filter)}.{urlsafe_b64encode(after.encode()).decode()}"

    def unseal_name(self, cursor: str, filter: tuple[object, ...]) -> str:
        mac, _, encoded = cursor.partition(".")
        try:
            after = urlsafe_b64decode(encoded).decode()
        except ValueError:
            raise InvalidToken("invalid cursor") from None
        if not mac.isascii() or not compare_digest(mac, self._filter_mac(after, filter)):
            raise InvalidToken("cursor does not belong to this list and filter")
        return after

    def _filter_mac(self, before: int | str, filter: tuple[object, ...]) -> str:
        text = repr((before, *filter)).encode()
        mac = blake2s(text, key=self.secret, digest_size=12, person=b"cursor").digest()
        return urlsafe_b64encode(mac).decode()


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
