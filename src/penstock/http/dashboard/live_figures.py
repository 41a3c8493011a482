"""Live figures of all queues, kept while a dashboard is open, and what changed since."""

import asyncio
import time
from collections.abc import Callable, Iterable

from penstock.broker.liveness import is_gone
from penstock.broker.queue_cache import QueueCache
from penstock.http.dashboard.seed import Seed, read_seed
from penstock.http.dashboard.series import BUCKETS, QueueSeries, Sample, find_bucket
from penstock.http.events.hub import do_nothing
from penstock.http.events.tail import find_newest
from penstock.http.metrics.queue_stats import QueueCounts, QueueSnapshot
from penstock.model.message import TICKET_PLACES, HistoryRow
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store

PAGE_SIZE = 500
# Pages per tick. What a busier store writes beyond them is skipped.
MAX_PAGES = 8
# Figures are dropped when no page has asked for them for this long.
IDLE_TIMEOUT_S = 60.0
WORKERS_INTERVAL_S = 2.0
QUEUES_TOPIC, WORKERS_TOPIC = "queues", "workers"


class LiveFigures:
    """An agent that reads recent history and counts, at most twice per second."""

    name = "live_figures"
    every = 0.5

    def __init__(self, store: Store, directory: QueueCache, counts: QueueCounts) -> None:
        self.store = store
        self.directory = directory
        self.counts = counts
        self.asked_at = float("-inf")
        # Open streams of changes.
        self.streams = 0
        self.position: int | None = None
        # What happened before, until the first count takes it in.
        self.seeded: Seed | None = None
        self.series: dict[int, QueueSeries] = {}
        self.counted: QueueSnapshot | None = None
        self.directory_seen = -1
        self.workers_seen: frozenset[tuple[str, bool, bool]] = frozenset()
        self.workers_at = 0.0
        # Grows with every change; the number of the last change by queue id and by topic.
        self.number = 0
        self.changed: dict[int, int] = {}
        self.topics: dict[str, int] = {}
        self.news = asyncio.Event()
        self.closed = False
        # Called when a page asks for figures. The agent sleeps until then.
        self.wake: Callable[[], None] = do_nothing
        # Requests and the agent may update at the same time.
        self.updating = asyncio.Lock()

    @property
    def wanted(self) -> bool:
        return self.streams > 0 or time.monotonic() - self.asked_at < IDLE_TIMEOUT_S

    async def ask(self) -> None:
        """Keeps the figures going. The first caller waits until they are there."""
        self.asked_at = time.monotonic()
        self.wake()
        if self.counted is None:
            async with self.updating:
                if self.counted is None:
                    await self.update()

    async def tick(self) -> float:
        if not self.wanted:
            self.position, self.counted, self.seeded = None, None, None
            self.series.clear()
            self.changed.clear()
            return UNTIL_WOKEN
        async with self.updating:
            await self.update()
        return self.every

    async def update(self) -> None:
        touched: set[int] = set()
        for row in await self.read():
            self.find_series(row.queue_id, row.at).add(row)
            touched.add(row.queue_id)
        snapshot = await self.counts.get_snapshot()
        if self.counted is None or snapshot.at != self.counted.at:
            touched |= self.compare(snapshot)
        topics = await self.find_changed_topics()
        if touched or topics:
            self.announce(touched, topics)

    async def read(self) -> list[HistoryRow]:
        if self.position is None:
            return await self.seed()
        found: list[HistoryRow] = []
        for _ in range(MAX_PAGES):
            rows = await self.store.recent(self.position, PAGE_SIZE)
            found += rows
            self.position = max([self.position, *(row.position for row in rows)])
            if len(rows) < PAGE_SIZE:
                return found
        self.position = (await find_newest(self.store)).history
        return found

    async def seed(self) -> list[HistoryRow]:
        """Reads what happened in the last minutes, within bounds."""
        self.seeded = seed = await read_seed(self.store)
        self.position = seed.position
        return seed.rows

    def find_series(self, queue_id: int, at: int) -> QueueSeries:
        series = self.series.get(queue_id)
        if series is None:
            begun = find_bucket(at if self.counted is None else self.counted.at)
            series = self.series[queue_id] = QueueSeries(begun)
            if self.counted is not None:
                series.total = count_unfinished(self.counted, queue_id)
                series.counted_at = self.counted.at
        return series

    def compare(self, snapshot: QueueSnapshot) -> set[int]:
        """Takes a new count into the series, and returns the queues whose counts changed."""
        before = {} if self.counted is None else self.counted.depths
        places = {*before, *snapshot.depths}
        touched = {
            queue_id
            for queue_id, place in places
            if before.get((queue_id, place)) != snapshot.depths.get((queue_id, place))
        }
        bucket = find_bucket(snapshot.at)
        for queue_id in {queue_id for queue_id, _ in snapshot.depths} | {*self.series}:
            self.count(queue_id, snapshot, bucket)
        self.counted, self.seeded = snapshot, None
        return touched

    def count(self, queue_id: int, snapshot: QueueSnapshot, bucket: int) -> None:
        depths = snapshot.depths
        series = self.find_series(queue_id, snapshot.at)
        if self.counted is None:
            series.begun = bucket
        if self.seeded is not None:
            self.seeded.fill(series, queue_id, snapshot)
        series.count(count_unfinished(snapshot, queue_id), snapshot.at)
        if self.counted is not None:
            series.fill_gaps(find_bucket(self.counted.at), bucket)
        ready, claimed = depths.get((queue_id, "ready"), 0), depths.get((queue_id, "lease"), 0)
        if queue_id in snapshot.keyed:
            series.keyed_in = bucket
        if ready or claimed:
            series.samples[bucket] = Sample(ready, claimed, snapshot.since.get(queue_id))
        series.forget_before(bucket - BUCKETS)

    async def find_changed_topics(self) -> set[str]:
        topics = set()
        await self.directory.refresh()
        if self.directory.version != self.directory_seen:
            self.directory_seen = self.directory.version
            topics.add(QUEUES_TOPIC)
        if time.monotonic() - self.workers_at >= WORKERS_INTERVAL_S:
            self.workers_at = time.monotonic()
            now = await self.store.now()
            workers = frozenset(
                (row.id, row.stopping, is_gone(row, now)) for row in await self.store.workers()
            )
            if workers != self.workers_seen:
                self.workers_seen = workers
                topics.add(WORKERS_TOPIC)
        return topics

    def announce(self, touched: Iterable[int], topics: Iterable[str]) -> None:
        self.number += 1
        self.changed.update(dict.fromkeys(touched, self.number))
        self.topics.update(dict.fromkeys(topics, self.number))
        self.news.set()
        self.news = asyncio.Event()

    def close(self) -> None:
        """Ends every stream of changes."""
        self.closed = True
        self.news.set()


def count_unfinished(snapshot: QueueSnapshot, queue_id: int) -> int:
    return sum(snapshot.depths.get((queue_id, place), 0) for place in TICKET_PLACES)
