"""Bugs of publishing, deduplication, cron and the stored body."""

from collections.abc import Iterator, Sequence

import msgspec

from tests.checker import Answer, Fire, Kind, Publish, Stored
from tests.checker.events import AnyCall
from tests.faults.ticket import Ticket

from .bug import Bug


class LosesPublish(Bug):
    """Confirms before it is durable."""

    breaks = Kind.LOST

    def publish(self, call: Publish) -> Answer:
        answer = super().publish(call)
        if not answer.duplicate and call.dedup is None and self.sometimes():
            self.tickets.pop(answer.id or 0)
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

    def publish(self, call: Publish) -> Answer:
        answer = super().publish(call)
        if call.dedup is None and self.sometimes():
            self.store(call)
            self.strike()
        return answer


class ReusesId(Bug):
    breaks = Kind.DUPLICATE_ID

    def publish(self, call: Publish) -> Answer:
        answer = super().publish(call)
        if call.dedup is None and len(self.tickets) > 1 and self.sometimes():
            self.strike(told=True)
            return Answer("ok", id=min(self.tickets))
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

    def fire(self, call: Fire) -> Answer:
        answer = super().fire(call)
        if answer.duplicate or len(self.ticks) != 3:
            return answer
        ticket = self.store(Publish("between", "work"))
        ticket.fired = (call.schedule, call.tick + 1)
        self.strike()
        return answer


class ForgetsKey(Bug):
    """Looks for the key before it waits for the lock."""

    breaks = Kind.DEDUP_BROKEN

    def seen(self, dedup: str) -> int | None:
        known = super().seen(dedup)
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

    def reclaim(self, ticket: Ticket) -> None:
        super().reclaim(ticket)
        ticket.intact = False
        self.strike()


class FiresTwice(Bug):
    """Two leaders, no unique tick."""

    breaks = Kind.CRON_DOUBLE_FIRE

    def fired(self, tick: tuple[str, int]) -> int | None:
        known = super().fired(tick)
        if known and self.sometimes():
            self.strike()
            return None
        return known


class MissesTick(Bug):
    """Believes that somebody else fired it."""

    breaks = Kind.CRON_MISSED

    def fire(self, call: Fire) -> Answer:
        if call.tick % 7 == 0:
            self.strike()
            return Answer("ok", duplicate=True)
        return super().fire(call)


class LeavesTwoPlaces(Bug):
    """Inserts into ready without deleting the lease."""

    breaks = Kind.TWO_PLACES

    def release(self, ticket: Ticket) -> Answer:
        ticket.more_places = ("lease",)
        self.strike(provided=lambda: ticket.state != "claimed")
        return super().release(ticket)


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
