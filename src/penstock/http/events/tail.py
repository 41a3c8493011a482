"""Tails the history of a store and turns it into events, for changes by any process."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime

import msgspec
import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.broker.activity.reader import find_last
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.inbox import Inbox
from penstock.broker.waiting.live_events import make_audience
from penstock.errors import NotFound, StoreError
from penstock.http.events.hub import EncodedEvent, Event, EventListener, Filter, Hub
from penstock.http.events.lease_watcher import LeaseWatcher
from penstock.http.events.wait_tail import WaitTail
from penstock.model.human import HumanSpec
from penstock.model.live_events import Audience
from penstock.model.message import MAX_POSITION, HistoryRow, Moment, StoredMessage
from penstock.model.queue import HUMAN, Queue
from penstock.model.store_types import Cursor
from penstock.outage import Outages
from penstock.rules.events import HUMAN_DECIDED, HUMAN_OPENED, PUBLISHED, classify
from penstock.rules.human_steps import TYPE
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

PAGE_SIZE = 500
# A missing row may belong to an open transaction, or was rolled back and never appears.
MISSING_ROW_TIMEOUT_MICROS = 600_000_000
MAX_MISSING_ROWS = 10_000
# Clients that read missed events at the same time.
MAX_CATCHING_UP = 2
log: FilteringBoundLogger = structlog.get_logger()


class ResumePoint(Struct, frozen=True):
    """A position of a reader. Everything before it has been read."""

    message: int
    history: int

    def __str__(self) -> str:
        return f"{self.message}-{self.history}"


def parse_resume_point(text: str) -> ResumePoint | None:
    message, dash, history = text.partition("-")
    numbers = [part for part in (message, history) if part.isascii() and part.isdecimal()]
    if not dash or len(numbers) != 2 or max(map(len, numbers)) > 19:
        return None
    return ResumePoint(int(message), int(history))


class HistoryReader:
    """Reads events from a mark on. It may repeat events, but never skips one."""

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        hub: Hub,
        mark: ResumePoint,
        watcher: LeaseWatcher | None = None,
        wait_tail: WaitTail | None = None,
    ) -> None:
        # Reports claims that the history shows first.
        self.watcher = watcher
        # Reports when messages resume that the history shows as waiting.
        self.wait_tail = wait_tail
        self.store = store
        self.directory = directory
        self.hub = hub
        self.mark = mark
        self.cursor = str(mark)
        self.top = mark.history
        # Rows past the mark that were read, with others missing before them: when each was written.
        self.ahead: dict[int, Moment] = {}
        self.look_back_at = 0.0

    async def read(self) -> list[EncodedEvent]:
        """Returns the next events in the order of their times; an empty list at the end.

        All have the same cursor, because their order is not that of the marks.
        """
        self.cursor = str(self.mark)
        feed = await self.store.feed(
            Cursor(message=self.mark.message, history=MAX_POSITION), PAGE_SIZE
        )
        rows = await self.read_rows()
        events = [await self.make_published_event(message) for message in feed.messages]
        await self.hub.learn(self.store, [row.id for row in rows])
        events += [await self.make_history_event(row) for row in rows]
        events += await self.make_human_events(feed.messages, rows)
        if self.watcher is not None:
            events += await self.watcher.make_missed_claims(rows)
        if self.wait_tail is not None:
            self.wait_tail.note_waits(rows)
        # The mark moves last, so that everything is read again after an error.
        self.mark = ResumePoint(feed.cursor.message, self.mark.history)
        self.advance(rows)
        self.hub.notify_ended(row.id for row in rows)
        return sorted(events, key=get_event_time)

    async def read_rows(self) -> list[HistoryRow]:
        rows = await self.store.recent(self.top, PAGE_SIZE)
        if self.ahead and time.monotonic() >= self.look_back_at:
            rows += await self.read_missing()
        return rows

    async def read_missing(self) -> list[HistoryRow]:
        """Reads rows of transactions that committed late."""
        rows = await self.store.recent(self.mark.history, PAGE_SIZE + len(self.ahead))
        self.look_back_at = time.monotonic() + max(0.5, len(self.ahead) / 2_000)
        return [row for row in rows if row.position < self.top and row.position not in self.ahead]

    def advance(self, rows: Iterable[HistoryRow]) -> None:
        self.ahead.update((row.position, row.at) for row in rows)
        self.top = max(self.top, *self.ahead) if self.ahead else self.top
        old = max(self.ahead.values(), default=0) - MISSING_ROW_TIMEOUT_MICROS
        history = self.mark.history
        for position in sorted(self.ahead):
            sure = self.ahead[position] < old or len(self.ahead) > MAX_MISSING_ROWS
            if position != history + 1 and not sure:
                break
            history = position
            del self.ahead[position]
        self.mark = ResumePoint(self.mark.message, history)

    async def make_published_event(self, message: StoredMessage) -> EncodedEvent:
        queue = await self.directory.get_by_id(message.queue_id)
        event = Event(
            kind=PUBLISHED,
            at=to_datetime(message.created_at),
            scope=queue.scope.name,
            queue=queue.name,
            id=str(message.id),
            type=message.type,
            correlation_id=message.meta.correlation_id,
        )
        return EncodedEvent(event, queue.scope.tenant, self.cursor)

    async def make_history_event(self, row: HistoryRow) -> EncodedEvent:
        queue = await self.directory.get_by_id(row.queue_id)
        type, correlation_id = self.hub.known.get(row.id, (None, None))
        event = Event(
            kind=classify(row),
            at=to_datetime(row.at),
            scope=queue.scope.name,
            queue=queue.name,
            id=str(row.id),
            type=type,
            state=row.state.value,
            attempts=row.attempts,
            consumer=row.consumer,
            reason=row.reason,
            error=None if "error" in queue.settings.mask else row.error,
            correlation_id=correlation_id,
        )
        return EncodedEvent(event, queue.scope.tenant, self.cursor)

    async def make_human_events(
        self, messages: Iterable[StoredMessage], rows: Iterable[HistoryRow]
    ) -> list[EncodedEvent]:
        made: list[EncodedEvent | None] = []
        for message in messages:
            queue = await self.directory.get_by_id(message.queue_id)
            if queue.name == HUMAN:
                made.append(make_opened_event(message, queue, self.cursor))
        for row in rows:
            queue = await self.directory.get_by_id(row.queue_id)
            if queue.name == HUMAN and row.state.final:
                made.append(
                    await make_ended_event(self.store, self.directory, row, queue, self.cursor)
                )
        return [each for each in made if each is not None]


def get_event_time(encoded: EncodedEvent) -> datetime:
    return encoded.event.at


async def find_newest(store: Store) -> ResumePoint:
    """Finds the end of the feed by bisection, because no store keeps it."""

    async def messages_after(number: int) -> bool:
        return bool((await store.feed(Cursor(message=number, history=MAX_POSITION), 1)).messages)

    async def history_after(number: int) -> bool:
        return bool(await store.recent(number, 1))

    return ResumePoint(await find_last(messages_after), await find_last(history_after))


class HistoryTail:
    """Follows the history of the store while there are listeners."""

    name = "history_tail"
    every = 0.2

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        hub: Hub,
        outages: Outages,
        watcher: LeaseWatcher,
        wait_tail: WaitTail,
    ) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        self.outages = outages
        self.watcher = watcher
        self.wait_tail = wait_tail
        self.reader: HistoryReader | None = None
        self.starting = asyncio.Lock()
        # Bounds how many returning clients read what they missed at the same time.
        self.turns = asyncio.Semaphore(MAX_CATCHING_UP)

    async def listen(self, wanted: Filter) -> EventListener:
        """Registers before it starts: a tick without listeners would stop it and lose events."""
        listener = self.hub.listen(wanted)
        try:
            await self.start()
            await self.watcher.start()
            await self.wait_tail.start()
        except BaseException:
            self.hub.leave(listener)
            raise
        listener.cursor = listener.cursor or self.hub.cursor
        return listener

    async def start(self) -> HistoryReader:
        """Starts at the end of history, once for all listeners that arrive together."""
        async with self.starting:
            if self.reader is None:
                end = await find_newest(self.store)
                self.reader = HistoryReader(
                    self.store, self.directory, self.hub, end, self.watcher, self.wait_tail
                )
                self.hub.cursor = str(end)
            return self.reader

    async def tick(self) -> float:
        if not self.hub.wanted:
            self.reader = None
            self.hub.cursor = None
            self.hub.announced.clear()
            return UNTIL_WOKEN
        # Handled here, because the runner would back off.
        try:
            wait = await self.follow()
        except StoreError as error:
            self.outages.report_failure(self.name, error)
            return self.every
        except NotFound as error:
            log.warning("history_tail_failed", error=str(error))
            return self.every
        self.outages.report_success(self.name)
        return wait

    async def follow(self) -> float:
        reader = await self.start()
        events = await reader.read()
        self.hub.send([each for each in events if self.hub.is_news(each.event)])
        self.hub.cursor = str(reader.mark)
        return 0 if len(events) >= PAGE_SIZE else self.every


def make_opened_event(message: StoredMessage, queue: Queue, cursor: str) -> EncodedEvent:
    assign = msgspec.json.decode(message.body, type=HumanSpec).assign
    event = Event(
        kind=HUMAN_OPENED,
        at=to_datetime(message.created_at),
        scope=queue.scope.name,
        queue=HUMAN,
        id=str(message.id),
        type=TYPE,
        state="scheduled",
        correlation_id=message.meta.correlation_id,
    )
    audience = Audience(frozenset(assign.users), frozenset(assign.roles))
    return EncodedEvent(event, queue.scope.tenant, cursor, audience)


async def make_ended_event(
    store: Store, directory: QueueCache, row: HistoryRow, queue: Queue, cursor: str
) -> EncodedEvent | None:
    """Returns None if the step has left the store."""
    inbox = Inbox(store, directory, queue.scope.tenant)
    try:
        found = await inbox.load(row.id, queue.scope.name)
    except NotFound:
        return None
    event = Event(
        kind=HUMAN_DECIDED,
        at=to_datetime(row.at),
        scope=queue.scope.name,
        queue=HUMAN,
        id=str(row.id),
        type=TYPE,
        state=row.state.value,
        reason=row.reason,
        correlation_id=found.correlation_id,
        by=None if found.decision is None else found.decision.by,
    )
    audience = make_audience(found.step, outcome=True)
    return EncodedEvent(event, queue.scope.tenant, cursor, audience)
