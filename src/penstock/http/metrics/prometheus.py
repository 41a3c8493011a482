"""The Prometheus metrics of a server. Label sets are bounded; a scrape runs no count query."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.broker.queue_cache import QueueCache
from penstock.http.metrics.queue_stats import QueueCounts, QueueSnapshot
from penstock.model.message import MICROS_PER_SECOND, PLACE_STATES
from penstock.stores.pool import ConnectionPool

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
    600.0, 3600.0,
)  # fmt: skip
BOUNDS = (*map(str, SECONDS), "+Inf")


class MetricFamily(Collector):
    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, labels: Sequence[str]
    ) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return ()


class CounterMetric(MetricFamily):
    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        super().__init__(registry, name, text, labels)
        self.counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, by: int = 1) -> None:
        self.counts[labels] += by

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, count in list(self.counts.items()):
            family.add_metric(labels, count)
        yield family


class HistogramMetric(MetricFamily):
    """Durations in seconds, by one label."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, label: str) -> None:
        super().__init__(registry, name, text, (label,))
        # The count of each bucket (not cumulative), and the sum of all values.
        self.seen: dict[str, tuple[list[int], list[float]]] = {}

    def add(self, label: str, seconds: float) -> None:
        seen = self.seen.get(label)
        if seen is None:
            seen = self.seen[label] = [0] * len(BOUNDS), [0.0]
        seen[0][bisect_left(SECONDS, seconds)] += 1
        seen[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for label, (counts, total) in list(self.seen.items()):
            buckets = list(zip(BOUNDS, accumulate(counts), strict=True))
            family.add_metric([label], buckets, total[0])
        yield family


T = TypeVar("T")
# Further queues share the label "other".
MAX_QUEUE_LABELS = 200
OTHER = "other"


def count_values(values: Sequence[T]) -> Iterable[tuple[T, int]]:
    """Counts each value. Fast if all are equal, which is the common case."""
    if values and values.count(values[0]) == len(values):
        return ((values[0], len(values)),)
    return Counter(values).items()


class Metrics:
    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.published = CounterMetric(own, "penstock_published", "Messages published.", "queue")
        self.refused = CounterMetric(
            own, "penstock_refused", "Messages refused, by error code.", "code"
        )
        self.claimed = CounterMetric(own, "penstock_claimed", "Messages claimed.", "queue")
        self.settled = CounterMetric(
            own, "penstock_settled", "Settle calls, by verb and outcome.", "verb", "outcome"
        )
        self.requests = CounterMetric(
            own, "penstock_http_requests", "HTTP requests, by route and status.", "route", "status"
        )
        self.seconds = HistogramMetric(
            own, "penstock_http_request_duration_seconds", "HTTP request duration.", "route"
        )
        self.runs = HistogramMetric(
            own, "penstock_run_seconds", "Duration of message runs (sampled).", "queue"
        )
        self.waits = HistogramMetric(
            own, "penstock_wait_seconds", "Time from publish to first claim (sampled).", "queue"
        )
        self.lost = CounterMetric(own, "penstock_lost_leases", "Expired leases (sampled).", "queue")
        self.lag = Gauge("penstock_loop_lag_seconds", "Event loop lag.", registry=own)
        self.queues: set[str] = set()

    def queue(self, name: str) -> str:
        if name not in self.queues:
            if len(self.queues) >= MAX_QUEUE_LABELS:
                return OTHER
            self.queues.add(name)
        return name

    def observe_request(self, route: str, status: int, took: float) -> None:
        """`route` is a template, never a requested path, so labels stay bounded."""
        self.requests.add(route, str(status))
        self.seconds.add(route, took)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is read at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def render(self) -> bytes:
        return generate_latest(self.registry)


class Depths(Collector):
    """Exposes the last snapshot of queue counts as gauges."""

    def __init__(self, counts: QueueCounts, directory: QueueCache, metrics: Metrics) -> None:
        self.counts = counts
        self.directory = directory
        self.metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "penstock_queue_depth", "Messages in each queue, by state.", labels=["queue", "state"]
        )
        for (queue, place), count in self.sum_depths().items():
            family.add_metric([queue, place], count)
        yield family
        yield self.collect_ages()

    def collect_ages(self) -> Metric:
        """Queues of the same name share a gauge, which shows the longest wait."""
        family = GaugeMetricFamily(
            "penstock_oldest_claimable_seconds", "Age of the oldest claimable message.",
            labels=["queue"],
        )  # fmt: skip
        snapshot = self.counts.ask() or QueueSnapshot(0, {})
        ages: dict[str, float] = {}
        for queue_id, since in snapshot.since.items():
            queue = self.directory.by_id.get(queue_id)
            if queue is not None:
                name = self.metrics.queue(queue.name)
                ages[name] = max(ages.get(name, 0.0), (snapshot.at - since) / MICROS_PER_SECOND)
        for name, age in ages.items():
            family.add_metric([name], age)
        return family

    def sum_depths(self) -> dict[tuple[str, str], int]:
        """Adds up queues of the same name, and those beyond MAX_QUEUE_LABELS."""
        snapshot = self.counts.ask()
        sums: dict[tuple[str, str], int] = {}
        for (queue_id, place), count in snapshot.depths.items() if snapshot else ():
            queue = self.directory.by_id.get(queue_id)
            if queue is not None and place in PLACE_STATES:
                key = (self.metrics.queue(queue.name), PLACE_STATES[place])
                sums[key] = sums.get(key, 0) + count
        return sums


def watch_pool(metrics: Metrics, pool: ConnectionPool[Any]) -> None:
    """Adds gauges of the store's connection pool."""
    metrics.watch("penstock_pool_used", "Store connections in use.", lambda: float(len(pool.used)))
    metrics.watch("penstock_pool_idle", "Idle store connections.", lambda: float(len(pool.idle)))
    metrics.watch(
        "penstock_pool_waiting",
        "Requests waiting for a store connection.",
        lambda: float(len(pool.waiting)),
    )


class LagWatch:
    """Measures event loop lag: how late a timer fires."""

    name = "loop_lag_watch"
    every = 1.0

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self.metrics = metrics
        self.now = now
        self.due_at: float | None = None

    async def tick(self) -> float:
        now = self.now()
        if self.due_at is not None:
            self.metrics.lag.set(max(0.0, now - self.due_at))
        wait = self.every / 2
        self.due_at = now + wait
        return wait
