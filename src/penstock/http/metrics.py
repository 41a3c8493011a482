"""What this server counts, for Prometheus. Label sets are bounded; a scrape counts no table."""

from collections import Counter as Counted
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.directory import Directory
from penstock.http.counts import SECOND, Counts, Snapshot
from penstock.stores.pool import Pool

T = TypeVar("T")
# Names of queues past these are "other".
MOST_QUEUES = 200
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PLACES = {"ready": "ready", "scheduled": "scheduled", "lease": "claimed", "dead": "dead"}
OTHER = "other"


def tally(values: Sequence[T]) -> Iterable[tuple[T, int]]:
    """Each with how often it is there; most often there is one."""
    return ((values[0], 1),) if len(values) == 1 else Counted(values).items()


class Metrics:
    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.published = Counter(
            "penstock_published", "Messages published here.", ["queue"], registry=own
        )
        self.refused = Counter("penstock_refused", "Messages refused here.", ["code"], registry=own)
        self.claimed = Counter(
            "penstock_claimed", "Messages claimed here.", ["queue"], registry=own
        )
        self.settled = Counter(
            "penstock_settled", "What consumers said here.", ["verb", "outcome"], registry=own
        )
        self.requests = Counter(
            "penstock_http_requests", "Requests answered.", ["route", "status"], registry=own
        )
        self.seconds = Histogram(
            "penstock_http_seconds", "How long they took.", ["route"], buckets=SECONDS, registry=own
        )
        self.runs = Histogram(
            "penstock_run_seconds", "How long runs took, of a sample.", ["queue"], registry=own
        )
        self.waits = Histogram(
            "penstock_wait_seconds",
            "From published to first claimed here, of a sample.",
            ["queue"],
            registry=own,
        )
        self.lost = Counter(
            "penstock_lost_leases", "Leases that ran out, of a sample.", ["queue"], registry=own
        )
        self.lag = Gauge("penstock_loop_lag_seconds", "How late the event loop was.", registry=own)
        self.queues: set[str] = set()
        self.children: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        self.answers: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.waiting: dict[str, Histogram] = {}

    def queue(self, name: str) -> str:
        if name not in self.queues:
            if len(self.queues) >= MOST_QUEUES:
                return OTHER
            self.queues.add(name)
        return name

    def answered(self, route: str, status: int, took: float) -> None:
        """A route is one of ours, never what a caller typed."""
        found = self.answers.get((route, status))
        if found is None:
            found = self.requests.labels(route, str(status)), self.seconds.labels(route)
            self.answers[route, status] = found
        found[0].inc()
        found[1].observe(took)

    def count(self, counter: Counter, *labels: str, by: int = 1) -> None:
        """Children are kept: looking one up costs more than counting."""
        child = self.children.get((counter, labels))
        if child is None:
            child = self.children[counter, labels] = counter.labels(*labels)
        child.inc(by)

    def count_published(self, queue: str, count: int = 1) -> None:
        self.count(self.published, self.queue(queue), by=count)

    def waited(self, queue: str, seconds: float) -> None:
        if queue not in self.waiting:
            self.waiting[queue] = self.waits.labels(queue)
        self.waiting[queue].observe(seconds)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Depths(Collector):
    """The last count there is, as gauges."""

    def __init__(self, counts: Counts, directory: Directory, metrics: Metrics) -> None:
        self.counts = counts
        self.directory = directory
        self.metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "penstock_depth", "Messages by place.", labels=["queue", "place"]
        )
        for (queue, place), count in self.sums().items():
            family.add_metric([queue, place], count)
        yield family
        yield self.ages()

    def ages(self) -> Metric:
        """Of queues that share a name, the longest."""
        family = GaugeMetricFamily(
            "penstock_oldest_claimable_seconds", "How long the next message waits.",
            labels=["queue"],
        )  # fmt: skip
        snapshot = self.counts.ask() or Snapshot(0, {})
        ages: dict[str, float] = {}
        for queue_id, since in snapshot.since.items():
            queue = self.directory.by_id.get(queue_id)
            if queue is not None:
                name = self.metrics.queue(queue.name)
                ages[name] = max(ages.get(name, 0.0), (snapshot.at - since) / SECOND)
        for name, age in ages.items():
            family.add_metric([name], age)
        return family

    def sums(self) -> dict[tuple[str, str], int]:
        """Queues of the same name in several scopes, and those past the limit, are added up."""
        snapshot = self.counts.ask()
        sums: dict[tuple[str, str], int] = {}
        for (queue_id, place), count in snapshot.depths.items() if snapshot else ():
            queue = self.directory.by_id.get(queue_id)
            if queue is not None and place in PLACES:
                key = (self.metrics.queue(queue.name), PLACES[place])
                sums[key] = sums.get(key, 0) + count
        return sums


def watch_pool(metrics: Metrics, pool: Pool[Any]) -> None:
    """The connections to the store."""
    metrics.watch("penstock_pool_used", "Connections in use.", lambda: float(len(pool.used)))
    metrics.watch("penstock_pool_idle", "Connections at rest.", lambda: float(len(pool.idle)))
    metrics.watch(
        "penstock_pool_waiting", "Who waits for a connection.", lambda: float(len(pool.waiting))
    )


class LagWatch:
    """How late a timer comes is how long everybody else waited."""

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
