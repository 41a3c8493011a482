"""Bugs of publishing, deduplication, cron and the stored body."""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.model.message import Draft, Verb
from tests.checker import Answer, Fire, Kind, Publish, Stored
from tests.checker.events import AnyCall
from tests.conformance.model.items import Item
from tests.conformance.model.rules import Ruling

from .bug import Bug


class LosesPublish(Bug):
    """Confirms before it is durable."""

    breaks = Kind.LOST

    def answer_publish(self, call: Publish) -> Answer:
        answer = super().answer_publish(call)
        if answer.id is not None and call.dedup is None and self.sometimes():
            self.items.pop(answer.id)
            self.strike(told=True)
        return answer


class ForgetsDelivered(Bug):
    """Deletes on completion what it must keep."""

    breaks = Kind.VANISHED

    def dump(self) -> Iterator[Stored]:
        for stored in super().dump():
            if stored.state == "completed":
                self.strike()
            else:
                yield stored


class StoresRefused(Bug):
    breaks = Kind.REFUSED_BUT_DELIVERED

    def refuse_publish(self, call: Publish) -> Answer:
        if call.dedup is None:
            self.store(call)
            self.strike(told=True)
        return super().refuse_publish(call)


class StoresTwice(Bug):
    """Repeats an insert whose answer was slow."""

    breaks = Kind.DUPLICATE_LABEL

    def answer_publish(self, call: Publish) -> Answer:
        answer = super().answer_publish(call)
        if answer.id is not None and call.dedup is None and self.sometimes():
            self.store(call)
            self.strike()
        return answer


class ReusesId(Bug):
    breaks = Kind.DUPLICATE_ID

    def answer_publish(self, call: Publish) -> Answer:
        answer = super().answer_publish(call)
        stored = answer.id is not None and call.dedup is None
        if stored and len(self.items) > 1 and self.sometimes():
            self.strike(told=True)
            return Answer("ok", id=min(self.items))
        return answer


class Invents(Bug):
    breaks = Kind.PHANTOM

    def sweep(self) -> None:
        super().sweep()
        if self.sometimes(0.1):
            self.store(Publish("nobody", "work"))
            self.strike()


class InventsTick(Bug):
    """Fires between two ticks."""

    breaks = Kind.PHANTOM

    def answer_fire(self, call: Fire) -> Answer:
        answer = super().answer_fire(call)
        if answer.duplicate or len(self.ticks) != 3:
            return answer
        item = self.store(Publish("between", "work"))
        self.fired_by[item.id] = (call.schedule, call.tick + 1)
        self.strike()
        return answer


class ForgetsKey(Bug):
    """Looks for the key before it waits for the lock."""

    breaks = Kind.DEDUP_BROKEN

    def seen(self, draft: Draft) -> Item | None:
        known = super().seen(draft)
        if known and self.sometimes(0.5):
            self.strike()
            return None
        return known


class TearsBatch(Bug):
    """Crashes inside a batch that is not one transaction."""

    breaks = Kind.BATCH_TORN

    def apply(self, calls: Sequence[AnyCall]) -> list[Answer]:
        drafts = [call for call in calls if isinstance(call, Publish)]
        if len(drafts) > 1 and self.sometimes(0.5):
            self.store(drafts[0])
            self.strike()
            return [Answer("unknown")] * len(drafts)
        return super().apply(calls)


class Corrupts(Bug):
    """Rewrites the body when a lease runs out."""

    breaks = Kind.BODY_CORRUPT

    def reclaim(self, item: Item) -> None:
        super().reclaim(item)
        item.draft = msgspec.structs.replace(item.draft, body=b"torn")
        self.strike()


class FiresTwice(Bug):
    """Two leaders, no unique tick."""

    breaks = Kind.CRON_DOUBLE_FIRE

    def find_fired(self, tick: tuple[str, int]) -> int | None:
        known = super().find_fired(tick)
        if known and self.sometimes():
            self.strike()
            return None
        return known


class MissesTick(Bug):
    """Believes that somebody else fired it."""

    breaks = Kind.CRON_MISSED

    def answer_fire(self, call: Fire) -> Answer:
        if call.tick % 7 == 0:
            self.strike()
            return Answer("ok", duplicate=True)
        return super().answer_fire(call)


class LeavesTwoPlaces(Bug):
    """Inserts into ready without deleting the lease."""

    breaks = Kind.TWO_PLACES

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        super().follow(item, verb, ruling)
        if verb is Verb.RELEASE:
            self.marks[item.id] = (self.now, self.token)
            self.strike(provided=lambda: item.place != "lease")

    def places(self, item: Item) -> tuple[str, ...]:
        return super().places(item) + (("lease",) if item.id in self.marks else ())


class LosesTicket(Bug):
    """Keeps the message of a dead letter and loses its ticket."""

    breaks = Kind.LOST

    def dump(self) -> Iterator[Stored]:
        for stored in super().dump():
            if stored.state == "dead":
                self.strike()
                yield msgspec.structs.replace(stored, places=())
            else:
                yield stored


BUGS: tuple[type[Bug], ...] = (
    LosesPublish,
    ForgetsDelivered,
    StoresRefused,
    StoresTwice,
    ReusesId,
    Invents,
    InventsTick,
    ForgetsKey,
    TearsBatch,
    Corrupts,
    FiresTwice,
    MissesTick,
    LeavesTwoPlaces,
    LosesTicket,
)
