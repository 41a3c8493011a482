"""The measures of every store."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from bench import verbs, worker_measures
from bench.figures import Figure, compare_values
from bench.ground import Ground
from bench.processes import run_alone
from bench.workload import WARM_UP


def publish_one(ground: Ground) -> list[Figure]:
    return publish(ground, "publish_one", 1)


def publish_64_callers(ground: Ground) -> list[Figure]:
    return publish(ground, "publish_64_callers", 64)


def publish(ground: Ground, measure: str, callers: int) -> list[Figure]:
    seconds = ground.sizes.seconds
    bare, ours = ground.in_turn(
        lambda url: run_alone(ground.reference.publish_one, url, seconds),
        lambda url: run_alone(verbs.publish, url, seconds, callers),
    )
    return [compare_values(measure, "msg/s", bare, ours)]


def bulk(ground: Ground) -> list[Figure]:
    count = ground.sizes.messages
    bare, ours = ground.in_turn(
        lambda url: run_alone(ground.reference.bulk, url, count),
        lambda url: run_alone(verbs.bulk, url, count),
    )
    return [compare_values("bulk", "msg/s", bare, ours)]


def drain_by_verbs(ground: Ground) -> list[Figure]:
    """Measures claim and complete of a broker, without a worker."""
    count = ground.sizes.messages
    hand, ours = ground.in_turn(
        lambda url: worker_measures.drain_by(ground.reference, url, count),
        lambda url: fill_and_drain(url, count),
    )
    return [compare_values("drain_by_verbs", "msg/s", hand, ours)]


def fill_and_drain(url: str, count: int) -> float:
    run_alone(verbs.fill, url, count + WARM_UP)
    return drain_head(url, count)


def drain_head(url: str, count: int) -> float:
    drained, seconds = run_alone(verbs.drain, url, count)
    return drained / seconds


def measure_backlog_1m(ground: Ground) -> list[Figure]:
    """Compares draining the head of a queue of a million with a short queue. Filled once."""
    head = ground.sizes.head
    with ground.store() as full:
        run_alone(verbs.fill, full, ground.sizes.backlog)
        short, long = ground.in_turn(
            lambda url: fill_and_drain(url, head), lambda _: drain_head(full, head)
        )
    return [compare_values("backlog_1m", "msg/s", short, long)]


def measure_memory(ground: Ground) -> list[Figure]:
    with ground.store() as url:
        sizes = ground.sizes
        growth = run_alone(verbs.memory, url, sizes.lives, sizes.first_lives)
    return [Figure("memory_growth_mb", growth, "MB")]


Measures: TypeAlias = dict[tuple[str, ...], Callable[[Ground], list[Figure]]]
MEASURES: Measures = {
    ("publish_one",): publish_one,
    ("publish_64_callers",): publish_64_callers,
    ("bulk",): bulk,
    ("drain", "client_cpu_us"): worker_measures.drain,
    ("drain_beside_peer",): worker_measures.drain_beside_peer,
    ("drain_threads",): worker_measures.drain_threads,
    ("drain_two_workers", "smaller_share"): worker_measures.drain_two_workers,
    ("drain_by_verbs",): drain_by_verbs,
    ("backlog_1m",): measure_backlog_1m,
    ("latency_p50_ms", "latency_p99_ms"): worker_measures.measure_latency,
    ("idle_cpu_percent",): worker_measures.measure_idle,
    ("recovery_s",): worker_measures.measure_recovery,
    ("memory_growth_mb",): measure_memory,
}


def measure(ground: Ground, measures: Measures, wanted: Collection[str]) -> Iterator[Figure]:
    """Yields each requested figure as soon as it is measured."""
    for names, take in measures.items():
        if not set(names).isdisjoint(wanted):
            yield from (figure for figure in take(ground) if figure.measure in wanted)
