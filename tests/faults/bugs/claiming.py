"""Bugs of fences, leases, due times and ordering keys."""

from collections.abc import Callable, Iterator

from penstock.model.message import Moment, State, Verb
from tests.checker import Answer, Kind, Settle, Stored
from tests.conformance.model.consuming import Ask
from tests.conformance.model.items import Hold, Item
from tests.conformance.model.rules import Ruling
from tests.faults.queue import Token

from .bug import Bug


class ReusesFence(Bug):
    breaks = Kind.FENCE_REUSED
    fence = 0
    owner: Token | None = None

    def next_fence(self) -> int:
        before = self.owner
        self.owner = self.token
        if self.fence and before and self.sometimes():
            self.strike(told=True, provided=lambda: before in self.told)
        else:
            self.fence = super().next_fence()
        return self.fence


class ShrinksFence(Bug):
    """Counts fences in the memory of a process that restarts."""

    breaks = Kind.FENCE_NOT_GROWING

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        if self.is_held_by_known(item):
            self.strike(told=True)
        super().lend(ask, item, 1_000_000 - fence)


class ReclaimsEarly(Bug):
    """Compares the lease with a clock that runs ahead."""

    breaks = Kind.LEASE_BROKEN_EARLY

    def over(self, hold: Hold) -> bool:
        return hold.until - 700_000 < self.now < hold.until - 100_000 or super().over(hold)

    def reclaim(self, item: Item) -> None:
        if item.held().until > self.now and self.is_held_by_known(item):
            self.strike()
        super().reclaim(item)


class ReclaimsLate(Bug):
    """Sweeps too seldom."""

    breaks = Kind.LATE_RECLAIM

    def over(self, hold: Hold) -> bool:
        return hold.until + 3_000_000 < self.now

    def reclaim(self, item: Item) -> None:
        calm = item.held().until > self.cut_until + 1_100_000
        if calm and self.is_held_by_known(item):
            self.strike()
        super().reclaim(item)


class NeverReclaims(Bug):
    """Recovers leases only of workers that start again."""

    breaks = Kind.STUCK

    def run_out(self) -> list[Item]:
        return [item for item in super().run_out() if item.id % 4 > 0]

    def dump(self) -> Iterator[Stored]:
        if self.at("lease"):
            self.strike()
        return super().dump()


class IgnoresDue(Bug):
    breaks = Kind.EARLY_DELIVERY

    def promote(self, limit: int) -> Moment | None:
        for item in self.due():
            item.due_at = min(item.due_at, self.now)
        return super().promote(limit)

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        if (item.draft.run_at or 0) > self.now + 10_000:
            self.strike(told=True, provided=lambda: self.untouched(item))
        super().lend(ask, item, fence)


class IgnoresBackoff(Bug):
    """Puts what was nacked back into ready at once."""

    breaks = Kind.EARLY_DELIVERY

    def answer_settle(self, call: Settle) -> Answer:
        answer = super().answer_settle(call)
        if answer.due_at is not None:
            self.items[call.id].due_at = self.now
            self.marks[call.id] = (answer.due_at, self.token)
        return answer

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        due_at, nack = self.marks.get(item.id, (0, None))
        if due_at > self.now + 10_000:
            self.strike(told=True, provided=lambda: nack in self.told and self.untouched(item))
        super().lend(ask, item, fence)


class IgnoresKey(Bug):
    """Two of one key at a time."""

    breaks = Kind.ORDER

    def get_in_line(self, item: Item, turn: tuple[int, int]) -> None:
        self.put(item, "ready")

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        """Seen if another one is open beside it now and is completed later."""
        for other in self.of_key("work", item.key) if verb is Verb.COMPLETE else ():
            if other is not item and self.beside(other):
                self.strike(told=True, provided=self.both_clean(item, other))
        super().follow(item, verb, ruling)

    def both_clean(self, one: Item, other: Item) -> Callable[[], bool]:
        return lambda: self.clean(one) and self.clean(other)

    def beside(self, other: Item) -> bool:
        return other.place == "lease" and self.is_held_by_known(other)


class RetryFreesKey(IgnoresKey):
    """The next of a key runs while the first waits for its retry."""

    def get_in_line(self, item: Item, turn: tuple[int, int]) -> None:
        super(IgnoresKey, self).get_in_line(item, turn)

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        super().follow(item, verb, ruling)
        if ruling.state is State.SCHEDULED and item.heads_key:
            item.heads_key = False
            self.advance(item.queue.name, item.key)

    def beside(self, other: Item) -> bool:
        return other.open and bool(other.timeline) and other.timeline[-1].verb is Verb.NACK


class Overtakes(Bug):
    """One of a key at a time, the newest first."""

    breaks = Kind.ORDER

    def next_of(self, line: list[Item]) -> Item:
        return max(line, key=lambda item: item.turn or (0, 0))

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        for other in self.of_key("work", item.key):
            if self.overtaken(other, item):
                self.strike(told=True, provided=self.both_clean(item, other))
        super().lend(ask, item, fence)

    def both_clean(self, one: Item, other: Item) -> Callable[[], bool]:
        return lambda: self.untouched(one) and self.clean(other)

    def overtaken(self, other: Item, item: Item) -> bool:
        """By real time: a publish that came late may have been asked for before the other."""
        plain = other.draft.run_at is None and item.draft.run_at is None and not other.timeline
        told_at = self.told.get(self.publishers.get(other.id) or ("", 0), self.now)
        published = self.publishers.get(item.id) is not None
        return published and plain and other.open and told_at < item.created_at - 20_000


BUGS: tuple[type[Bug], ...] = (
    ReusesFence,
    ShrinksFence,
    ReclaimsEarly,
    ReclaimsLate,
    NeverReclaims,
    IgnoresDue,
    IgnoresBackoff,
    IgnoresKey,
    RetryFreesKey,
    Overtakes,
)
