"""Sends claims and extensions by any process to event streams, while there are listeners.

A claim writes no history, so a server looks at the leases twice a second.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

import structlog
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.errors import NotFound, StoreError
from penstock.http.events.hub import EncodedEvent, Event, Hub
from penstock.model.activity import HeldLease
from penstock.model.message import NEVER, HistoryRow, Moment
from penstock.outage import Outages
from penstock.rules.events import CLAIMED, EXTENDED
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

MAX_LEASES = 5_000
# Deliveries that were announced, so that none is announced twice.
MAX_DELIVERIES = 50_000
log: FilteringBoundLogger = structlog.get_logger()


class ClaimLedger:
    """Remembers which deliveries were reported, and until when their leases last."""

    def __init__(self) -> None:
        self.reported: OrderedDict[tuple[int, int], Moment] = OrderedDict()
        # Deliveries that began earlier are not reported: the listeners came later.
        self.since: Moment = NEVER

    def note(self, id: int, fence: int, until: Moment) -> None:
        self.reported[id, fence] = until
        self.reported.move_to_end((id, fence))
        if len(self.reported) > MAX_DELIVERIES:
            self.reported.popitem(last=False)

    def note_claim(self, id: int, fence: int, until: Moment) -> bool:
        """Notes a claim by this server. Returns True if it was not reported before."""
        is_news = (id, fence) not in self.reported
        if is_news:
            self.note(id, fence, until)
        return is_news

    def note_extension(self, id: int, fence: int, until: Moment) -> bool:
        """Notes an extension by this server. Returns True if it was not reported before."""
        is_news = self.reported.get((id, fence), 0) < until
        if is_news:
            self.note(id, fence, until)
        return is_news

    def is_unreported(self, row: HistoryRow) -> bool:
        """True if the row ends a delivery that was not reported."""
        return (
            row.fence is not None
            and row.claimed_at is not None
            and row.claimed_at >= self.since
            and (row.id, row.fence) not in self.reported
        )

    def note_end(self, row: HistoryRow) -> None:
        """Keeps an older read of the leases from reporting the delivery again."""
        if row.fence is not None:
            self.note(row.id, row.fence, NEVER)


class LeaseWatcher:
    """Compares the leases with those of its last look. Without listeners it reads nothing."""

    name = "lease_watcher"
    every = 0.5

    def __init__(self, store: Store, directory: QueueCache, hub: Hub, outages: Outages) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        self.outages = outages
        self.ledger = ClaimLedger()
        self.started = False
        self.starting = asyncio.Lock()
        self.top = 0

    async def tick(self) -> float:
        if not self.hub.wants((CLAIMED, EXTENDED)):
            self.started = False
            self.ledger.since = NEVER
            return UNTIL_WOKEN
        try:
            await self.look()
        except StoreError as error:
            self.outages.report_failure(self.name, error)
            return self.every
        except NotFound as error:
            log.warning("lease_watcher_failed", error=str(error))
            return self.every
        self.outages.report_success(self.name)
        return self.every

    async def start(self) -> None:
        """Takes the leases as they are, because their claims were before anyone listened."""
        async with self.starting:
            if self.started:
                return
            since = await self.store.now()
            leases = await self.store.held(0, MAX_LEASES + 1)
            self.started = True
            self.ledger.since = since
            for lease in leases:
                self.ledger.note(lease.id, lease.fence, lease.lease_until)
            self.top = max((lease.fence for lease in leases), default=0)

    async def look(self) -> None:
        await self.start()
        leases = await self.store.held(0, MAX_LEASES + 1)
        if len(leases) > MAX_LEASES:
            leases = await self.store.held(self.top, MAX_LEASES + 1)
        if len(leases) > MAX_LEASES:
            await self.send_counts(leases)
        else:
            await self.compare(leases)
        self.top = max([self.top, *(lease.fence for lease in leases)])

    async def compare(self, leases: Sequence[HeldLease]) -> None:
        reported = self.ledger.reported
        claimed = [each for each in leases if (each.id, each.fence) not in reported]
        extended = [
            each for each in leases if reported.get((each.id, each.fence), NEVER) < each.lease_until
        ]
        for lease in leases:
            # A note of a later end or extension stays.
            until = max(lease.lease_until, reported.get((lease.id, lease.fence), 0))
            self.ledger.note(lease.id, lease.fence, until)
        await self.hub.learn(self.store, [each.id for each in (*claimed, *extended)])
        self.hub.send([await self.make_event(CLAIMED, lease) for lease in claimed])
        self.hub.send([await self.make_event(EXTENDED, lease) for lease in extended])

    async def send_counts(self, leases: Sequence[HeldLease]) -> None:
        """Reports how many messages of each queue were claimed, if they are too many."""
        self.ledger.since = leases[-1].claimed_at
        for queue_id, count in Counter(lease.queue_id for lease in leases).items():
            queue = await self.directory.get_by_id(queue_id)
            at = to_datetime(leases[-1].claimed_at)
            event = Event(CLAIMED, at, queue.scope.name, queue.name, count=count)
            self.hub.send([EncodedEvent(event, queue.scope.tenant)])

    async def make_event(self, kind: str, lease: HeldLease) -> EncodedEvent:
        queue = await self.directory.get_by_id(lease.queue_id)
        type, correlation_id = self.hub.known.get(lease.id, (None, None))
        # The moment of an extension is not stored.
        at = lease.claimed_at if kind == CLAIMED else await self.store.now()
        event = Event(
            kind=kind,
            at=to_datetime(at),
            scope=queue.scope.name,
            queue=queue.name,
            id=str(lease.id),
            type=type,
            state="claimed",
            attempts=lease.attempts,
            consumer=lease.consumer,
            correlation_id=correlation_id,
        )
        return EncodedEvent(event, queue.scope.tenant)

    async def make_missed_claims(self, rows: Iterable[HistoryRow]) -> list[EncodedEvent]:
        """Makes the claims of deliveries that began and ended between two looks."""
        ended = list(rows)
        claims = [
            await self.make_event(CLAIMED, make_ended_lease(row))
            for row in ended
            if self.ledger.is_unreported(row)
        ]
        for row in ended:
            self.ledger.note_end(row)
        return claims


def make_ended_lease(row: HistoryRow) -> HeldLease:
    """Makes the lease of a delivery that ended, as it was."""
    return HeldLease(
        id=row.id,
        fence=row.fence or 0,
        queue_id=row.queue_id,
        consumer=row.consumer or "",
        attempts=max(0, row.attempts - 1),
        claimed_at=row.claimed_at or row.at,
        lease_until=row.at,
    )
