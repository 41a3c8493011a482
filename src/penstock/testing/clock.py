"""A clock that tests move by hand."""

from penstock.model.message import Moment

# 2026-01-01 00:00 UTC.
START: Moment = 1_767_225_600_000_000


class ManualClock:
    """The clock of a store under test."""

    def __init__(self, now: Moment = START) -> None:
        self.now = now

    def __call__(self) -> Moment:
        return self.now

    def advance(self, seconds: float) -> None:
        """Moves the clock without running anything, as if the machine slept. May be negative."""
        self.now += round(seconds * 1_000_000)
