"""Skips dead index entries at the head of a queue while vacuum cannot remove them.

An old snapshot, such as a backup's, keeps every claimed row in the index, and each claim would
step over all of them. After a claim that is far slower than usual, the next ones begin behind the
last claimed message. They begin at the head again after a notice for the queue, and periodically.
"""

from typing import NamedTuple

# A claim is slow if it takes this many times the cheapest one, and at least these seconds.
DEARER, LONG = 4.0, 0.003
# The fixed cost of a claim, in rows.
EMPTY = 20
# After a claim from the head, the next ones skip it for this long, or for this many times as
# long as the claim took.
MAX_SKIP_S, SKIP_FACTOR = 0.25, 20


class CursorPosition(NamedTuple):
    rank: int
    id: int


class ClaimSpan(NamedTuple):
    """The duration, end time and row count of a claim."""

    seconds: float
    ended: float
    handed_out: int

    @property
    def cost(self) -> float:
        return self.seconds / (self.handed_out + EMPTY)


class ClaimCursor:
    """The claim position of one queue in this process."""

    __slots__ = ("after", "cheapest", "heard", "was_slow", "whole_at")

    def __init__(self) -> None:
        # The lowest cost per row seen; None until a claim was fast or began behind the head.
        self.cheapest: float | None = None
        self.was_slow = False
        self.after: CursorPosition | None = None
        self.heard = 0
        self.whole_at = 0.0

    def choose_start(self, now: float, heard: int) -> CursorPosition | None:
        """Returns where to begin; None is the head. `heard` changes with each notice."""
        if self.after is None or heard != self.heard or now >= self.whole_at:
            return None
        return self.after

    def record_claim(self, took: ClaimSpan, heard: int, last: CursorPosition | None) -> None:
        """Records a claim from the head, up to its last message."""
        slow = took.seconds > LONG and (self.cheapest is None or took.cost > DEARER * self.cheapest)
        if not slow:
            self.sample(took.cost)
        self.after = last if slow else None
        self.heard = heard
        self.whole_at = took.ended + max(MAX_SKIP_S, SKIP_FACTOR * took.seconds)

    def advance(self, took: ClaimSpan, last: CursorPosition | None) -> None:
        """Records a claim from behind the head."""
        self.sample(took.cost)
        if last is not None:
            self.after = last

    def sample(self, cost: float) -> None:
        """Updates the lowest cost, which decays so that it can rise again."""
        self.cheapest = cost if self.cheapest is None else min(cost, self.cheapest * 1.001)
