"""Bugs of attempts, deliveries and their limits."""

from collections.abc import Iterator
from dataclasses import replace

from penstock.model.message import Moment, Settlement, State, Verb
from tests.checker import Kind, Stored
from tests.conformance.model.consuming import Ask, Sight
from tests.conformance.model.items import Item
from tests.conformance.model.rules import Ruling

from .bug import Bug


class ForgetsAttempt(Bug):
    breaks = Kind.ATTEMPTS_WRONG

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        spent = ruling.attempts > item.attempts and verb is not Verb.RECLAIM
        if spent and not item.held().cancel_requested and self.sometimes():
            ruling = replace(ruling, attempts=item.attempts)
            self.strike(provided=lambda: self.untouched(item))
        super().follow(item, verb, ruling)


class Marked(Bug):
    """Seen if the next delivery after a wrong count is seen, and the one before was."""

    def mark(self, item: Item) -> None:
        if self.is_held_by_known(item):
            self.marks[item.id] = (item.held().fence, self.holders[item.id])

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        before, _ = self.marks.pop(item.id, (0, None))
        if before and item.timeline[-1].fence == before:
            self.strike(told=True, provided=lambda: not self.asked["begin", item.id, before])
        super().lend(ask, item, fence)


class MarkedExpiry(Marked):
    """Counts a lost delivery its own way."""

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        if verb is Verb.RECLAIM and not item.held().cancel_requested:
            ruling = self.count(item, ruling)
        super().follow(item, verb, ruling)

    def count(self, item: Item, ruling: Ruling) -> Ruling:
        raise NotImplementedError


class ExpiryBurnsAttempt(MarkedExpiry):
    """Counts a lost worker as a failed attempt although the queue says keep."""

    breaks = Kind.ATTEMPTS_WRONG

    def count(self, item: Item, ruling: Ruling) -> Ruling:
        if self.limits.on_expiry == "count" or item.held().unbegun:
            return ruling
        self.mark(item)
        return replace(ruling, attempts=item.attempts + 1)


class ExpiryForgetsAttempt(MarkedExpiry):
    breaks = Kind.ATTEMPTS_WRONG

    def count(self, item: Item, ruling: Ruling) -> Ruling:
        if ruling.attempts > item.attempts and item.deliveries >= 2:
            self.mark(item)
        return replace(ruling, attempts=item.attempts)


class PrefetchBurnsDelivery(MarkedExpiry):
    """What a killed worker had not begun counts against it."""

    breaks = Kind.DELIVERIES_WRONG

    def count(self, item: Item, ruling: Ruling) -> Ruling:
        if item.held().unbegun:
            self.mark(item)
        return replace(ruling, deliveries=item.deliveries)


class ReleaseBurnsDelivery(Marked):
    breaks = Kind.DELIVERIES_WRONG

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        if verb is Verb.RELEASE:
            self.mark(item)
            ruling = replace(ruling, deliveries=item.deliveries)
        super().follow(item, verb, ruling)


class ForgetsDelivery(Bug):
    """Takes the count from a stale read."""

    breaks = Kind.DELIVERIES_WRONG

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        super().lend(ask, item, fence)
        if item.timeline and item.timeline[-1].verb is Verb.NACK and self.sometimes(0.5):
            item.deliveries -= 1
            self.strike(told=True)


class NeverDies(Bug):
    """Looks at no limit before the ninth delivery."""

    breaks = Kind.OVER_DELIVERED

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        used_up = ruling.state is State.DEAD and verb in (Verb.NACK, Verb.RECLAIM)
        if used_up and item.deliveries < 9:
            ruling = replace(ruling, state=State.READY)
            self.marks[item.id] = (self.now, self.token)
        super().follow(item, verb, ruling)

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        if item.id in self.marks:
            self.strike(told=True, provided=lambda: self.untouched(item))
        super().lend(ask, item, fence)


class DiesEarly(Bug):
    """One run too few."""

    breaks = Kind.DEAD_TOO_EARLY

    def look(self, id: int, settlement: Settlement, expired_by: Moment | None = None) -> Sight:
        item = self.items[id]
        fair = super().look(id, settlement, expired_by)
        item.attempts, item.deliveries = item.attempts + 1, item.deliveries + 1
        harsh = super().look(id, settlement, expired_by)
        item.attempts, item.deliveries = item.attempts - 1, item.deliveries - 1
        if fair.ruling.state is harsh.ruling.state or harsh.ruling.state is not State.DEAD:
            return fair
        self.marks[id] = (fair.fence, self.token)
        return replace(fair, ruling=replace(fair.ruling, state=State.DEAD))

    def dump(self) -> Iterator[Stored]:
        for item in self.at("dead"):
            if item.timeline[-1].fence == self.marks.get(item.id, (0, None))[0]:
                self.strike()
        return super().dump()


BUGS: tuple[type[Bug], ...] = (
    ForgetsAttempt,
    ExpiryBurnsAttempt,
    ExpiryForgetsAttempt,
    ReleaseBurnsDelivery,
    PrefetchBurnsDelivery,
    ForgetsDelivery,
    NeverDies,
    DiesEarly,
)
