"""Follows waiting messages while there are listeners: signals, resumes, reminders, workflows."""

import asyncio
from collections.abc import Iterable, Sequence

import structlog
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.live_events import read_live_events
from penstock.errors import NotFound, StoreError
from penstock.http.events.hub import EncodedEvent, Event, Hub
from penstock.model.live_events import LiveEvent
from penstock.model.message import MICROS_PER_SECOND, HistoryRow, Moment, Record, State
from penstock.model.queue import HUMAN
from penstock.model.search import Position, Scan, Source
from penstock.outage import Outages
from penstock.rules.events import LIVE_WAIT_KINDS, RESUMED, WAITING, classify
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

# Events become visible when their transaction commits, so the last seconds are read again.
LOOK_BACK_MICROS = 10 * MICROS_PER_SECOND
# Waiting messages whose resume is reported, and the newest scheduled ones among which they are.
MAX_WAITING = 5_000
MAX_SCANNED = 50_000
PAGE_SIZE = 500
# The fence of a message that waits no more.
NOT_HELD = -1
log: FilteringBoundLogger = structlog.get_logger()


class WaitTail:
    """Sends events about waiting. Reads nothing while there are no listeners for them."""

    name = "wait_follower"
    every = 0.5

    def __init__(self, store: Store, directory: QueueCache, hub: Hub, outages: Outages) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        self.outages = outages
        # None without listeners. Earlier events are not sent.
        self.since: Moment | None = None
        self.starting = asyncio.Lock()
        self.sent: set[str] = set()
        # Maps message ids to the fence of the delivery that waits.
        self.waiting: dict[int, int] = {}

    async def tick(self) -> float:
        if not self.hub.wants(LIVE_WAIT_KINDS):
            self.since = None
            return UNTIL_WOKEN
        try:
            await self.start()
            await self.send_stored()
            await self.send_resumed()
        except StoreError as error:
            self.outages.report_failure(self.name, error)
            return self.every
        except NotFound as error:
            log.warning("wait_tail_failed", error=str(error))
            return self.every
        self.outages.report_success(self.name)
        return self.every

    async def start(self) -> None:
        """Takes what waits as it is, because its waits began before anyone listened."""
        async with self.starting:
            if self.since is not None or not self.hub.wants(LIVE_WAIT_KINDS):
                return
            since = await self.store.now()
            self.sent = set(await read_live_events(self.store, since - LOOK_BACK_MICROS))
            self.waiting = await self.find_waiting()
            self.since = since

    async def find_waiting(self) -> dict[int, int]:
        queues = [each.id for each in await self.directory.list_queues() if each.name != HUMAN]
        found: dict[int, int] = {}
        after: Position | None = Position() if queues else None
        seen = 0
        while after is not None and seen < MAX_SCANNED and len(found) < MAX_WAITING:
            page = await self.store.scan(
                Scan(Source.SCHEDULED, tuple(queues), after, limit=PAGE_SIZE)
            )
            found |= await self.read_fences([head.id for head in page.heads])
            seen += len(page.heads)
            after = page.next
        return found

    async def read_fences(self, ids: Sequence[int]) -> dict[int, int]:
        """Returns the fences of deliveries that wait. One that was never delivered has none."""
        fences: dict[int, int] = {}
        for start in range(0, len(ids), PAGE_SIZE):
            for hold in await self.store.holds(ids[start : start + PAGE_SIZE]):
                if hold.number:
                    fences[hold.held_id] = max(hold.number, fences.get(hold.held_id, 0))
        return fences

    def note_waits(self, rows: Iterable[HistoryRow]) -> None:
        """Remembers messages that the history shows as waiting."""
        if self.since is None:
            return
        for row in rows:
            if classify(row) == WAITING and len(self.waiting) < MAX_WAITING:
                # An earlier wait stays: its resume is yet to be reported.
                self.waiting.setdefault(row.id, row.fence or 0)

    async def send_stored(self) -> None:
        now = await self.store.now()
        found = await read_live_events(self.store, now - LOOK_BACK_MICROS)
        new = [event for name, event in found.items() if name not in self.sent]
        self.sent = set(found)
        self.hub.send([encode_live(event) for event in new])

    async def send_resumed(self) -> None:
        if not self.waiting:
            return
        known = dict(self.waiting)
        fences = await self.read_fences(list(known))
        gone = [id for id, fence in known.items() if fences.get(id, NOT_HELD) != fence]
        if not gone:
            return
        now = await self.store.now()
        records = await self.store.get_many(gone)
        self.hub.send([await self.make_resumed(each, now) for each in records if has_run_on(each)])
        for id in gone:
            if id in fences:
                self.waiting[id] = fences[id]
            elif self.waiting[id] == known[id]:
                del self.waiting[id]

    async def make_resumed(self, record: Record, now: Moment) -> EncodedEvent:
        message = record.message
        queue = await self.directory.get_by_id(message.queue_id)
        event = Event(
            kind=RESUMED,
            at=to_datetime(now),
            scope=queue.scope.name,
            queue=queue.name,
            id=str(message.id),
            type=message.type,
            state=record.state.value,
            correlation_id=message.meta.correlation_id,
        )
        return EncodedEvent(event, queue.scope.tenant)


def has_run_on(record: Record) -> bool:
    """False if the wait was ended from outside."""
    return record.state not in (State.CANCELLED, State.EXPIRED)


def encode_live(stored: LiveEvent) -> EncodedEvent:
    event = Event(
        kind=stored.kind,
        at=to_datetime(stored.at),
        scope=stored.scope,
        queue=stored.queue,
        id=stored.id,
        type=stored.type,
        state=stored.state,
        reason=stored.reason,
        correlation_id=stored.correlation_id,
    )
    return EncodedEvent(event, stored.tenant, audience=stored.audience)
