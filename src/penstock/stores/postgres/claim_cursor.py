"""Where the line of a queue begins, while what was claimed from it cannot be cleared away.

An old snapshot, held by a backup say, keeps every claimed row in the index, and each claim would
step over all of them. A claim that costs far more than others did makes the next ones begin behind
the last message that was handed out. What enters the line before that is looked for again at once
if somebody tells of it, and every so often anyway.
"""

from typing import NamedTuple

# Dearer than the cheapest one by this, and longer than this: seconds.
DEARER, LONG = 4.0, 0.003
# A claim costs as much as this many rows even if it finds none.
EMPTY = 20
# From the start of the line at least this often, but for no more than a twentieth of the time.
OFTEN, SELDOM = 0.25, 20


class CursorPosition(NamedTuple):
    rank: int
    id: int


class ClaimSpan(NamedTuple):
    """How long a claim lasted, until when, and how many it handed out."""

    seconds: float
    ended: float
    handed_out: int

    @property
    def cost(self) -> float:
        return self.seconds / (self.handed_out + EMPTY)


class ClaimCursor:
    """One queue, as one process sees it."""

    __slots__ = ("after", "cheapest", "heard", "was_slow", "whole_at")

    def __init__(self) -> None:
        # What a claim costs at best; not known before one was quick, or began behind the start.
        self.cheapest: float | None = None
        self.was_slow = False
        self.after: CursorPosition | None = None
        self.heard = 0
        self.whole_at = 0.0

    def choose_start(self, now: float, heard: int) -> CursorPosition | None:
        """None is its very start. `heard` changes when somebody tells of the queue."""
        if self.after is None or heard != self.heard or now >= self.whole_at:
            return None
        return self.after

    def record_claim(self, took: ClaimSpan, heard: int, last: CursorPosition | None) -> None:
        """A claim from the very start, up to the last that it handed out."""
        slow = took.seconds > LONG and (self.cheapest is None or took.cost > DEARER * self.cheapest)
        if not slow:
            self.learn(took.cost)
        self.after = last if slow else None
        self.heard = heard
        self.whole_at = took.ended + max(OFTEN, SELDOM * took.seconds)

    def advance(self, took: ClaimSpan, last: CursorPosition | None) -> None:
        """A claim from behind the start."""
        self.learn(took.cost)
        if last is not None:
            self.after = last

    def learn(self, cost: float) -> None:
        """A little is forgotten each time: what was cheap once may never be again."""
        self.cheapest = cost if self.cheapest is None else min(cost, self.cheapest * 1.001)
