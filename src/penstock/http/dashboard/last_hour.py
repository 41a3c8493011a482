"""The last hour of all queues, added up once for all pages that show it."""

import asyncio
import time
from collections.abc import Sequence

from penstock.broker.metrics.queries import MetricsReader
from penstock.model.metrics import MetricPoint
from penstock.model.queue import Queue

# Pages ask every few seconds; the historian counts every two.
FRESH_S = 4.0
# Sums of different sets of queues: callers with different rights.
MAX_SUMS = 50
Queues = frozenset[int]


class LastHour:
    """Keeps the sums of each set of queues for a few seconds."""

    def __init__(self) -> None:
        self.sums: dict[Queues, tuple[float, list[MetricPoint]]] = {}
        self.reading = asyncio.Lock()

    async def get(self, reader: MetricsReader, queues: Sequence[Queue]) -> list[MetricPoint]:
        key = frozenset(queue.id for queue in queues)
        async with self.reading:
            known = self.sums.get(key)
            if known is not None and time.monotonic() - known[0] < FRESH_S:
                return known[1]
            points = await reader.sum_hour(queues)
            self.sums.pop(key, None)
            while len(self.sums) >= MAX_SUMS:
                del self.sums[next(iter(self.sums))]
            self.sums[key] = (time.monotonic(), points)
            return points
