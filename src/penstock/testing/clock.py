"""A clock that moves only when it is told to."""

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
        """Nothing runs meanwhile: as if the machine had been asleep. May be negative."""
        self.now += round(seconds * 1_000_000)
