"""Snapshots of queue counts and processing rates, shared by all requests."""

import asyncio
import math
import time
from collections.abc import Callable

from msgspec import Struct

from penstock.http.events.tail import find_newest
from penstock.model.message import MICROS_PER_SECOND, HistoryRow, Moment
from penstock.store import Store

# Ended messages are counted among this many of the latest.
ENDED = 10_000
# A count is repeated after this many times its own duration at the earliest.
COUNT_COST_FACTOR = 40
# Counting stops when no request asked for this long.
IDLE_TIMEOUT_S = 120.0
SAMPLE_SIZE = 500
SMOOTHING_FACTOR = 0.3
# Assumed run time in seconds of a queue without history.
UNKNOWN_RUN_S = 1.0


class QueueSnapshot(Struct, frozen=True):
    at: Moment
    depths: dict[tuple[int, str], int]
    # Maps queue ids to the time since which the oldest claimable message has been waiting.
    since: dict[int, Moment] = {}
    # Queues with unfinished messages that have an ordering key.
    keyed: frozenset[int] = frozenset()


class QueueRate(Struct, frozen=True):
    """Ended deliveries per second, and the average run time in seconds."""

    rate: float = 0.0
    run: float = UNKNOWN_RUN_S


class QueueCounts:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.latest: QueueSnapshot | None = None
        self.counting = asyncio.Lock()
        self.next_at = 0.0
        self.asked_at = -math.inf

    def ask(self) -> QueueSnapshot | None:
        """Returns the last snapshot, however old, and keeps the sampler running."""
        self.asked_at = time.monotonic()
        return self.latest

    async def get_snapshot(self) -> QueueSnapshot:
        """Returns a snapshot at most a second old, or older if counting is slow."""
        self.ask()
        async with self.counting:
            if self.latest is None or time.monotonic() >= self.next_at:
                self.latest = await self.count()
            return self.latest

    async def count(self) -> QueueSnapshot:
        began = time.monotonic()
        store = self.store
        snapshot = QueueSnapshot(
            await store.now(),
            await store.depths(ENDED),
            await store.waiting_since(),
            await store.queues_with_keys(),
        )
        took = time.monotonic() - began
        self.next_at = time.monotonic() + max(1.0, COUNT_COST_FACTOR * took)
        return snapshot


class QueueRates:
    """Rates by queue id, estimated from a sample of history."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.position: int | None = None
        self.read_at = 0.0
        self.of_queue: dict[int, QueueRate] = {}

    async def read(self) -> list[HistoryRow]:
        now = time.monotonic()
        if self.position is None:
            self.position, self.read_at = (await find_newest(self.store)).history, now
            return []
        rows = await self.store.recent(self.position, SAMPLE_SIZE)
        full = len(rows) == SAMPLE_SIZE
        seconds = (rows[-1].at - rows[0].at) / MICROS_PER_SECOND if full else now - self.read_at
        self.learn(rows, max(seconds, 0.001))
        self.position = None if full else max([self.position, *(row.position for row in rows)])
        self.read_at = now
        return rows

    def learn(self, rows: list[HistoryRow], seconds: float) -> None:
        for queue_id in {*self.of_queue, *(row.queue_id for row in rows)}:
            runs = [estimate_run_time(row) for row in rows if row.queue_id == queue_id]
            known = [run for run in runs if run is not None]
            old = self.of_queue.get(queue_id, QueueRate())
            run = smooth(old.run, sum(known) / len(known)) if known else old.run
            self.of_queue[queue_id] = QueueRate(smooth(old.rate, len(known) / seconds), run)


def estimate_run_time(row: HistoryRow) -> float | None:
    return None if row.claimed_at is None else max(0, row.at - row.claimed_at) / MICROS_PER_SECOND


def smooth(old: float, new: float) -> float:
    return new if old == 0.0 else old + SMOOTHING_FACTOR * (new - old)


def compute_workers_needed(pace: QueueRate, ready: int, concurrency: int, catch_up: float) -> int:
    """Workers to keep up with the rate and clear the backlog in `catch_up` seconds."""
    runs = pace.rate * pace.run + ready * pace.run / catch_up
    return max(math.ceil(runs / concurrency), 1 if ready or runs else 0)


class QueueStatsSampler:
    """Takes snapshots while requests ask for them."""

    name = "metrics_snapshotter"
    every = 5.0

    def __init__(
        self, counts: QueueCounts, paces: QueueRates, on_row: Callable[[HistoryRow], None]
    ) -> None:
        self.counts = counts
        self.paces = paces
        self.on_row = on_row

    async def tick(self) -> float:
        if time.monotonic() - self.counts.asked_at > IDLE_TIMEOUT_S:
            self.paces.position = None
            return self.every
        asked_at = self.counts.asked_at
        await self.counts.get_snapshot()
        self.counts.asked_at = asked_at
        for row in await self.paces.read():
            self.on_row(row)
        return self.every
