"""Cheap counters and histograms for Prometheus.

They are plain numbers, updated on one thread without locks and converted at each scrape.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

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
