"""Autoscaling: processing rates of queues, and how many workers each queue needs."""

import math
import time

from msgspec import Struct

from penstock.http.events.tail import find_newest
from penstock.model.message import MICROS_PER_SECOND, HistoryRow
from penstock.store import Store

SAMPLE_SIZE = 500
SMOOTHING_FACTOR = 0.3
# Assumed run time in seconds of a queue without history.
UNKNOWN_RUN_S = 1.0


class QueueRate(Struct, frozen=True):
    """Ended deliveries per second, and the average run time in seconds."""

    rate: float = 0.0
    run: float = UNKNOWN_RUN_S


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
        self.sample(rows, max(seconds, 0.001))
        self.position = None if full else max([self.position, *(row.position for row in rows)])
        self.read_at = now
        return rows

    def sample(self, rows: list[HistoryRow], seconds: float) -> None:
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
