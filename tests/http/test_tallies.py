"""What is counted here is what Prometheus would have counted."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from penstock.http.metrics.prometheus import SECONDS, CounterMetric, HistogramMetric


def lines(registry: CollectorRegistry) -> set[str]:
    """Without when each began, which ours do not tell."""
    text = generate_latest(registry).decode()
    return {line for line in text.splitlines() if "_created" not in line}


def test_counts_are_told_as_those_of_prometheus() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count = CounterMetric(ours, "jobs", "Jobs.", "queue", "verb")
    counter = Counter("jobs", "Jobs.", ["queue", "verb"], registry=theirs)
    for queue, verb, by in (("a", "complete", 1), ("a", "complete", 3), ('"b"\n', "fail", 1)):
        count.add(queue, verb, by=by)
        counter.labels(queue, verb).inc(by)
    assert lines(ours) == lines(theirs)


def test_times_are_told_as_those_of_prometheus() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    times = HistogramMetric(ours, "took", "Seconds.", "route")
    histogram = Histogram("took", "Seconds.", ["route"], buckets=SECONDS, registry=theirs)
    for route, seconds in (("/a", 0.0), ("/a", 0.001), ("/a", 0.5), ("/a", 1e6), ("/b", 0.0011)):
        times.add(route, seconds)
        histogram.labels(route).observe(seconds)
    assert lines(ours) == lines(theirs)
