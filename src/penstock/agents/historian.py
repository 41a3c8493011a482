"""Derives metrics, consumer statistics and anomalies from history, exactly once."""

import time
from collections.abc import Mapping

from penstock.broker.metrics.accumulator import MetricsAccumulator
from penstock.broker.metrics.rows import QueueTotals, read_state
from penstock.broker.queue_cache import QueueCache
from penstock.model.anomalies import AnomalyRow
from penstock.model.heads import DigestBounds, FeedDigest
from penstock.model.message import Moment, State
from penstock.model.queue import Queue
from penstock.rules.anomalies import (
    QueueRules,
    count_batches,
    count_claims,
    find_bulk,
    find_in_rows,
    get_hour,
    make_bounds,
    make_queue_rules,
    make_row,
)
from penstock.rules.metrics import Timing, fold_metrics, time_rows
from penstock.runner import report
from penstock.store import Store

PAGE_SIZE = 2_000
# Rows of one tick.
MAX_ROWS = 20_000
# With more rows to count, it rests this many times as long as the tick took: it shares the event
# loop with a worker or a server, whose work comes first. It hurries once it is late.
REST_FACTOR, LATE_REST_FACTOR = 33, 9
LATE_S = 30.0
CURSOR = "agent:historian"


class Historian:
    name = "historian"
    every = 2.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.book = MetricsAccumulator(store)
        # The queues whose rules these are.
        self.queues: Mapping[int, Queue] | None = None
        self.rules: dict[int, QueueRules] = {}
        self.bounds = DigestBounds()
        # A page that was read to see whether there is something to count.
        self.news: FeedDigest | None = None
        # How old the last rows were that it counted, in seconds.
        self.lag = 0.0

    async def tick(self) -> float:
        """Counts new history. One process has the tick; a change of another is not repeated."""
        began = time.monotonic()
        if not await self.has_news():
            return self.every
        if not await self.store.claim_tick(self.name, self.every, self.by):
            return self.every
        try:
            rows, more = await self.advance()
        except BaseException:
            # Rows that were read are not stored yet, so they are read again.
            self.book.close()
            raise
        await self.store.end_tick(self.name, self.by, report({"rows": rows}))
        if not more:
            return self.every
        factor = REST_FACTOR if self.lag < LATE_S else LATE_REST_FACTOR
        return min(self.every, factor * (time.monotonic() - began))

    async def has_news(self) -> bool:
        self.news = None
        state, version = await read_state(self.store)
        if version != self.book.version or version == 0:
            counted_elsewhere = self.book.version != 0
            self.book.open(state, version)
            # Another process counts: if it has stopped, the version is the same next time.
            if counted_elsewhere:
                return False
        await self.load_rules()
        self.news = await self.read_page()
        return self.news.count > 0

    async def load_rules(self) -> None:
        await self.directory.refresh()
        queues = self.directory.by_id
        if queues is not self.queues:
            self.queues, self.news = queues, None
            self.rules = {id: make_queue_rules(queue) for id, queue in queues.items()}
            self.bounds = make_bounds(self.rules)

    async def read_page(self) -> FeedDigest:
        return await self.store.digest(self.book.state.cursor, PAGE_SIZE, self.bounds)

    async def advance(self) -> tuple[int, bool]:
        """Counts some pages as one change. Returns the rows counted, and whether there are more."""
        now = await self.store.now()
        await self.load_rules()
        rows, more = 0, True
        while more and rows < MAX_ROWS:
            page = self.news or await self.read_page()
            self.news = None
            more = page.cursor != self.book.state.cursor and page.count > 0
            if more:
                await self.count(page)
                self.lag = (now - find_last_moment(page)) / 1_000_000
            rows += page.count
        if not rows:
            return 0, False
        if not more:
            self.book.state.reached = max(self.book.state.reached, now)
        if await self.store.advance(self.book.make_change()) is None:
            self.book.close()
            return 0, False
        self.book.accept()
        await self.store.save_cursor(CURSOR, self.book.state.cursor)
        return rows, more

    async def count(self, page: FeedDigest) -> None:
        state = self.book.state
        queue_ids = {
            *(each[1] for each in page.published),
            *(group.queue_id for group in page.groups),
            *(row.queue_id for row in page.rest.history),
        }
        for id in queue_ids - self.rules.keys():
            self.rules[id] = make_queue_rules(None)
        timings = time_rows(page.rest)
        flash = {id: int(self.rules[id].thresholds.flash_under * 1_000_000) for id in queue_ids}
        last_at = max(list_ends(page), default=state.reached)
        rules_of = self.rules.__getitem__
        await self.book.add(fold_metrics(page, timings, flash), rules_of, last_at)
        await self.book.add_anomalies(find_in_rows(timings, self.rules).values(), rules_of)
        for key, seconds in count_claims(timings, self.rules).items():
            await self.book.add_claims(key, seconds, self.rules[key[1]])
        await self.book.add_anomalies(self.find_batches(page), rules_of)
        await self.book.add_anomalies(self.find_cleared(timings), rules_of)
        state.cursor = page.cursor
        state.position = max(state.position, page.position)
        state.reached = max(state.reached, last_at)

    def find_batches(self, page: FeedDigest) -> list[AnomalyRow]:
        """A batch may go on in the next page, so the last one of each queue is kept."""
        found, batches = [], self.book.state.batches
        for (queue_id, at), count in count_batches(page.published, self.rules).items():
            last_at, before = batches.get(queue_id, (0, 0))
            before = before if last_at == at else 0
            row = find_bulk(queue_id, at, before, count, self.rules[queue_id])
            found += [] if row is None else [row]
            batches[queue_id] = (at, before + count)
        return found

    def find_cleared(self, timings: list[Timing]) -> list[AnomalyRow]:
        """Finds queues whose last waiting messages were purged."""
        purged: dict[int, Moment] = {
            each.row.queue_id: each.row.at
            for each in timings
            if each.row.state is State.CANCELLED
            and each.row.reason == "purged"
            and not each.was_dead
            and self.rules[each.row.queue_id].allows("queue_cleared")
        }
        totals = self.book.state.totals
        return [
            make_row((get_hour(at), "queue_cleared", queue_id, "", ""), None, None, at)
            for queue_id, at in purged.items()
            if totals.get(queue_id, QueueTotals()).unfinished == 0
        ]


def list_ends(page: FeedDigest) -> list[Moment]:
    return [group.last_at for group in page.groups] + [row.at for row in page.rest.history]


def find_last_moment(page: FeedDigest) -> Moment:
    """Returns when the last row of a page was written, of the table that is further behind."""
    moments = [each[3] for each in page.published[-1:]]
    if ends := list_ends(page):
        moments.append(max(ends))
    return min(moments)
