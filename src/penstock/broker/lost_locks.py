"""Remembers settles that were refused because the lock was lost, until an agent records them."""

from collections import deque

from penstock.model.store_types import Lock

# Beyond so many the oldest are dropped.
MAX_LOST_LOCKS = 1_000


class LostLocks:
    """The tally of one process. Noting a lock writes nothing."""

    def __init__(self) -> None:
        self.noted: deque[Lock] = deque(maxlen=MAX_LOST_LOCKS)

    def note(self, id: int, fence: int) -> None:
        self.noted.append(Lock(id, fence))

    def take(self) -> list[Lock]:
        taken = list(self.noted)
        self.noted.clear()
        return taken
