"""Measures of server stores: CPU, log and commits per message, many queues, one core."""

import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from bench import crowds, verbs, workers
from bench.figures import Figure, compare_values
from bench.ground import Ground
from bench.measures import Measures
from bench.processes import Start, run_alone
from bench.subjects import Served
from bench.usage import use_one_core
from bench.worker_measures import drain_by, fill_and_drain
from bench.workload import WARM_UP

Drain: TypeAlias = Callable[[Start, str, int], float]
NEIGHBOURS = 1_000
NEIGHBOURS_HOLD = 10


class Costs(Struct, frozen=True):
    """Costs of one message. Log and commits cover its whole life."""

    client: float
    server: float
    wal: float
    commits: float


def measure_costs(ground: Ground) -> list[Figure]:
    """Measures CPU microseconds per drained message, and log bytes and commits from publish on."""
    hand: list[Costs] = []
    ours: list[Costs] = []
    for _ in range(ground.sizes.repeats):
        for take, kept in ((measure_costs_by_hand, hand), (measure_costs_of_worker, ours)):
            with ground.store() as url:
                kept.append(take(ground, url))
    return [
        make_figure("cpu_us", "us", hand, ours, lambda each: each.client + each.server),
        make_figure("server_cpu_us", "us", hand, ours, lambda each: each.server),
        make_figure("wal_bytes", "B", hand, ours, lambda each: each.wal),
        make_figure("commits", "", hand, ours, lambda each: each.commits),
    ]


def make_figure(
    measure: str, unit: str, hand: list[Costs], ours: list[Costs], part: Callable[[Costs], float]
) -> Figure:
    return compare_values(measure, unit, list(map(part, hand)), list(map(part, ours)))


def measure_costs_by_hand(ground: Ground, url: str) -> Costs:
    count = ground.sizes.messages
    return measure_costs_of(
        ground,
        lambda number: run_alone(ground.reference.fill, url, number),
        lambda: run_alone(drain_with_client, ground.reference.drain, url, count - WARM_UP),
    )


def measure_costs_of_worker(ground: Ground, url: str) -> Costs:
    return measure_costs_of(
        ground,
        lambda number: run_alone(verbs.fill, url, number),
        lambda: run_alone(workers.drain, url).client,
    )


def measure_costs_of(
    ground: Ground, fill: Callable[[int], None], drain: Callable[[], float]
) -> Costs:
    subject, count = get_served(ground), ground.sizes.messages
    fill(0)
    empty = subject.usage()
    fill(count)
    full = subject.usage()
    client = drain()
    after = subject.usage()
    drained, life = after.since(full), after.since(empty)
    return Costs(
        1e6 * client / count, 1e6 * drained.seconds / count, life.wal / count, life.commits / count
    )


def drain_with_client(start: Start, drain: Drain, url: str, count: int) -> float:
    """Returns the CPU seconds of the hand-written loop in this process."""
    used = 0.0

    def begin() -> None:
        nonlocal used
        start()
        used = time.process_time()

    drain(begin, url, count)
    return time.process_time() - used


def drain_one_core(ground: Ground) -> list[Figure]:
    """Runs client and server on one core."""
    count = ground.sizes.messages
    with use_one_core(get_served(ground).server):
        hand, ours = ground.in_turn(
            lambda url: drain_by(ground.reference, url, count),
            lambda url: count / fill_and_drain(url, count).seconds,
        )
    return [compare_values("drain_one_core", "msg/s", hand, ours)]


def drain_threads_by_hand(ground: Ground) -> list[Figure]:
    """Compares handlers in threads with the hand-written loop."""
    count = ground.sizes.messages
    hand, ours = ground.in_turn(
        lambda url: drain_by(ground.reference, url, count),
        lambda url: count / fill_and_drain(url, count, "thread").seconds,
    )
    return [compare_values("drain_threads_by_hand", "msg/s", hand, ours)]


def bulk_mixed(ground: Ground) -> list[Figure]:
    count = ground.sizes.messages
    bare, ours = ground.in_turn(
        lambda url: run_alone(ground.reference.bulk, url, count),
        lambda url: run_alone(crowds.bulk_mixed, url, count),
    )
    return [compare_values("bulk_mixed", "msg/s", bare, ours)]


def drain_among_1000(ground: Ground) -> list[Figure]:
    """Compares one queue among 1000 filled queues with one queue alone."""
    count = ground.sizes.messages

    def among(url: str) -> float:
        run_alone(crowds.fill_others, url, NEIGHBOURS, NEIGHBOURS_HOLD)
        return count / fill_and_drain(url, count).seconds

    single, many = ground.in_turn(lambda url: count / fill_and_drain(url, count).seconds, among)
    return [compare_values("drain_among_1000", "msg/s", single, many)]


def get_served(ground: Ground) -> Served:
    assert isinstance(ground.subject, Served), "only a server has these measures"
    return ground.subject


MEASURES: Measures = {
    ("bulk_mixed",): bulk_mixed,
    ("drain_threads_by_hand",): drain_threads_by_hand,
    ("drain_one_core",): drain_one_core,
    ("cpu_us", "server_cpu_us", "wal_bytes", "commits"): measure_costs,
    ("drain_among_1000",): drain_among_1000,
}
