"""Follows the history of a store: what any process did to its messages becomes events."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.directory import Directory
from penstock.errors import Archived, NotFound, StoreError
from penstock.http.events import PUBLISHED, Event, Hub, Told, kind_of
from penstock.message import HistoryRow, Message, Moment
from penstock.outage import Outages
from penstock.store import Store
from penstock.ticket import Cursor
from penstock.wire.texts import time_at

PAGE = 500
FARTHEST = 2**62
# A row that is missing may come for as long as somebody's transaction lasts, in microseconds; or it
# was rolled back, and never comes.
PATIENCE = 600_000_000
MOST_AHEAD = 10_000
# So many read at once what they missed.
TURNS = 2
log: FilteringBoundLogger = structlog.get_logger()


class Mark(Struct, frozen=True):
    """How far a reader is: nothing before it will come, or not any more."""

    message: int
    history: int

    def __str__(self) -> str:
        return f"{self.message}-{self.history}"


def mark_of(text: str) -> Mark | None:
    message, dash, history = text.partition("-")
    numbers = [part for part in (message, history) if part.isascii() and part.isdecimal()]
    if not dash or len(numbers) != 2 or max(map(len, numbers)) > 19:
        return None
    return Mark(int(message), int(history))


class Reader:
    """Reads on from a mark. Repeats what it is not sure of; never skips."""

    def __init__(self, store: Store, directory: Directory, hub: Hub, mark: Mark) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        self.mark = mark
        self.cursor = str(mark)
        self.top = mark.history
        # Rows past the mark that were read, with others missing before them: when each was written.
        self.ahead: dict[int, Moment] = {}
        self.look_back_at = 0.0

    async def read(self) -> list[Told]:
        """The next events, as they happened; none if it has read all there is.

        Whoever has seen one of them goes on with all of them: their order is not that of the marks.
        """
        self.cursor = str(self.mark)
        told = await self.published() + await self.ended()
        return sorted(told, key=moment_of)

    async def published(self) -> list[Told]:
        feed = await self.store.feed(Cursor(message=self.mark.message, history=FARTHEST), PAGE)
        told = [await self.told_message(message) for message in feed.messages]
        self.mark = Mark(feed.cursor.message, self.mark.history)
        return told

    async def ended(self) -> list[Told]:
        rows = await self.store.recent(self.top, PAGE)
        if self.ahead and time.monotonic() >= self.look_back_at:
            rows += await self.missing()
        told = [await self.told_row(row) for row in rows]
        self.advance(rows)
        self.hub.happened(row.id for row in rows)
        return told

    async def missing(self) -> list[HistoryRow]:
        """Rows that were written by transactions which ended only now."""
        rows = await self.store.recent(self.mark.history, PAGE + len(self.ahead))
        self.look_back_at = time.monotonic() + max(0.5, len(self.ahead) / 2_000)
        return [row for row in rows if row.position < self.top and row.position not in self.ahead]

    def advance(self, rows: Iterable[HistoryRow]) -> None:
        self.ahead.update((row.position, row.at) for row in rows)
        self.top = max(self.top, *self.ahead) if self.ahead else self.top
        old = max(self.ahead.values(), default=0) - PATIENCE
        history = self.mark.history
        for position in sorted(self.ahead):
            sure = self.ahead[position] < old or len(self.ahead) > MOST_AHEAD
            if position != history + 1 and not sure:
                break
            history = position
            del self.ahead[position]
        self.mark = Mark(self.mark.message, history)

    async def told_message(self, message: Message) -> Told:
        queue = await self.directory.numbered(message.queue_id)
        event = Event(
            PUBLISHED,
            time_at(message.created_at),
            queue.scope.name,
            queue.name,
            str(message.id),
            message.type,
            correlation_id=message.meta.correlation_id,
        )
        return Told(event, queue.scope.tenant, self.cursor)

    async def told_row(self, row: HistoryRow) -> Told:
        queue = await self.directory.numbered(row.queue_id)
        type, correlation_id = await self.known(row.id)
        event = Event(
            kind_of(row),
            time_at(row.at),
            queue.scope.name,
            queue.name,
            str(row.id),
            type,
            row.state.value,
            row.attempts,
            row.consumer,
            row.reason,
            row.error,
            correlation_id,
        )
        return Told(event, queue.scope.tenant, self.cursor)

    async def known(self, id: int) -> tuple[str | None, str | None]:
        if id not in self.hub.known:
            try:
                record = await self.store.get(id)
            except Archived:
                record = None
            if record is None:
                return None, None
            self.hub.know(id, record.message.type, record.message.meta.correlation_id)
        return self.hub.known[id]


def moment_of(told: Told) -> datetime:
    return told.event.at


async def newest(store: Store) -> Mark:
    """The end of what there is, by halving: no store keeps it."""

    async def messages_after(number: int) -> bool:
        return bool((await store.feed(Cursor(message=number, history=FARTHEST), 1)).messages)

    async def history_after(number: int) -> bool:
        return bool(await store.recent(number, 1))

    return Mark(await last(messages_after), await last(history_after))


async def last(any_after: Callable[[int], Awaitable[bool]]) -> int:
    low, high = -1, FARTHEST
    while high - low > 1:
        middle = (low + high) // 2
        if await any_after(middle):
            low = middle
        else:
            high = middle
    return high


class Follower:
    """Reads only while somebody listens."""

    name = "event_follower"
    every = 0.2

    def __init__(self, store: Store, directory: Directory, hub: Hub, outages: Outages) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        self.outages = outages
        self.reader: Reader | None = None
        self.starting = asyncio.Lock()
        # Whoever comes back reads what it missed; a crowd of them leaves the store to others.
        self.turns = asyncio.Semaphore(TURNS)

    async def start(self) -> Reader:
        """From now on nothing is missed, for whoever listens already. It is begun by one of those
        who come at once, and the others wait for that."""
        async with self.starting:
            if self.reader is None:
                end = await newest(self.store)
                self.reader = Reader(self.store, self.directory, self.hub, end)
            return self.reader

    async def tick(self) -> float:
        if not self.hub.wanted:
            self.reader = None
            self.hub.announced.clear()
            return self.every
        # The runner would wait longer and longer, and events are for now.
        try:
            wait = await self.follow()
        except StoreError as error:
            self.outages.report_failure(self.name, error)
            return self.every
        except NotFound as error:
            log.warning("events_late", error=str(error))
            return self.every
        self.outages.report_success(self.name)
        return wait

    async def follow(self) -> float:
        reader = await self.start()
        told = await reader.read()
        self.hub.tell([each for each in told if self.hub.is_news(each.event)])
        return 0 if len(told) >= PAGE else self.every
