"""Where the line of a queue begins, while what was claimed from it cannot be cleared away.

An old snapshot, held by a backup say, keeps every claimed row in the index, and each claim would
step over all of them. A claim that costs far more than it did makes the next ones begin behind the
last message that was handed out. What enters the line before that is looked for again at once if
somebody tells of it, and every so often anyway.
"""

from math import inf
from typing import NamedTuple

# Dearer than the cheapest one by this, and longer than this: seconds.
DEARER, LONG = 4.0, 0.003
# A claim costs as much as this many rows even if it finds none.
EMPTY = 20
# From the start of the line at least this often, but for no more than a twentieth of the time.
OFTEN, SELDOM = 0.25, 20


class Place(NamedTuple):
    rank: int
    id: int


class Line:
    """One queue, as one process sees it."""

    __slots__ = ("after", "cheapest", "heard", "whole_at")

    def __init__(self) -> None:
        self.cheapest = inf
        self.after: Place | None = None
        self.heard = 0
        self.whole_at = 0.0

    def begins(self, now: float, heard: int) -> Place | None:
        """None is its very start. `heard` changes when somebody tells of the queue."""
        if self.after is None or heard != self.heard or now >= self.whole_at:
            return None
        return self.after

    def took(
        self, started: float, ended: float, heard: int, count: int, last: Place | None
    ) -> None:
        """A claim from the very start handed out this many, up to the last."""
        took = ended - started
        cost = took / (count + EMPTY)
        self.cheapest = min(cost, self.cheapest * 1.01)
        slow = took > LONG and cost > DEARER * self.cheapest
        self.after = last if slow else None
        self.heard = heard
        self.whole_at = ended + max(OFTEN, SELDOM * took)

    def went_on(self, last: Place | None) -> None:
        if last is not None:
            self.after = last
