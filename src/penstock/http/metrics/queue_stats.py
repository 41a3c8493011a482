"""Snapshots of queue counts and processing rates, shared by all requests."""

import asyncio
import math
import time
from collections.abc import Callable

from msgspec import Struct

from penstock.http.metrics.autoscale import QueueRates
from penstock.model.message import HistoryRow, Moment
from penstock.store import Store

# Ended messages are counted among this many of the latest.
ENDED = 10_000
# A count is repeated after this many times its own duration at the earliest.
COUNT_COST_FACTOR = 40
# Counting stops when no request asked for this long.
IDLE_TIMEOUT_S = 120.0


class QueueSnapshot(Struct, frozen=True):
    at: Moment
    depths: dict[tuple[int, str], int]
    # Maps queue ids to the time since which the oldest claimable message has been waiting.
    since: dict[int, Moment] = {}
    # Queues with unfinished messages that have an ordering key.
    keyed: frozenset[int] = frozenset()


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


class QueueStatsSampler:
    """Takes snapshots while requests ask for them."""

    name = "metrics_snapshotter"
    every = 5.0

    def __init__(
        self, counts: QueueCounts, rates: QueueRates, on_row: Callable[[HistoryRow], None]
    ) -> None:
        self.counts = counts
        self.rates = rates
        self.on_row = on_row

    async def tick(self) -> float:
        if time.monotonic() - self.counts.asked_at > IDLE_TIMEOUT_S:
            self.rates.position = None
            return self.every
        asked_at = self.counts.asked_at
        await self.counts.get_snapshot()
        self.counts.asked_at = asked_at
        for row in await self.rates.read():
            self.on_row(row)
        return self.every
