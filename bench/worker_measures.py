"""Measures of a real worker: throughput, latency, idle CPU and crash recovery."""

from collections.abc import Callable
from typing import TypeAlias

from bench import verbs, workers
from bench.figures import Figure, compare_values, make_absent, summarise
from bench.ground import Ground
from bench.processes import Job, Start, await_survivor, run_alone, run_together
from bench.subjects import Loops
from bench.workers import Drained
from bench.workload import WARM_UP

Send: TypeAlias = Callable[[Start, str, int, float], list[float]]
Receive: TypeAlias = Callable[[Start, str, int], list[float]]


def drain(ground: Ground) -> list[Figure]:
    """Compares a worker with the hand-written loop, and measures its client CPU per message."""
    count = ground.sizes.messages
    client: list[float] = []

    def by_worker(url: str) -> float:
        drained = fill_and_drain(url, count)
        client.append(1e6 * drained.client / count)
        return count / drained.seconds

    hand, ours = ground.in_turn(lambda url: drain_by(ground.reference, url, count), by_worker)
    return [compare_values("drain", "msg/s", hand, ours), summarise("client_cpu_us", "us", client)]


def drain_beside_peer(ground: Ground) -> list[Figure]:
    name, unit, peer = "drain_beside_peer", "msg/s", ground.subject.peer
    if peer is None:
        return []
    if not peer.is_installed():
        return [make_absent(name, unit, f"{peer.NAME} is not installed")]
    count = ground.sizes.messages
    theirs, ours = ground.in_turn(
        lambda url: drain_by(peer, url, ground.sizes.peer_messages),
        lambda url: count / fill_and_drain(url, count).seconds,
    )
    return [compare_values(name, unit, theirs, ours)]


def drain_by(loops: Loops, url: str, count: int) -> float:
    run_alone(loops.fill, url, count + WARM_UP)
    return run_alone(loops.drain, url, count)


def fill_and_drain(url: str, count: int, kind: workers.Kind = "async") -> Drained:
    run_alone(verbs.fill, url, count)
    drained = run_alone(workers.drain, url, kind)
    verbs.require(drained.count == count, f"{drained.count} of {count} messages were completed")
    return drained


def drain_threads(ground: Ground) -> list[Figure]:
    """Compares handlers in threads with coroutines."""
    count = ground.sizes.messages
    coroutines, threads = ground.in_turn(
        lambda url: count / fill_and_drain(url, count).seconds,
        lambda url: count / fill_and_drain(url, count, "thread").seconds,
    )
    return [compare_values("drain_threads", "msg/s", coroutines, threads)]


def drain_two_workers(ground: Ground) -> list[Figure]:
    """Compares two worker processes with one, and reports the smaller share."""
    count = ground.sizes.messages
    shares: list[float] = []

    def by_two(url: str) -> float:
        run_alone(verbs.fill, url, count)
        both = run_together(Job(workers.drain, url), Job(workers.drain, url))
        counts = [each.count for each in both]
        verbs.require(sum(counts) == count, f"{sum(counts)} of {count} messages were completed")
        shares.append(100 * min(counts) / count)
        return count / max(each.seconds for each in both)

    one, two = ground.in_turn(lambda url: count / fill_and_drain(url, count).seconds, by_two)
    return [
        compare_values("drain_two_workers", "msg/s", one, two),
        summarise("smaller_share", "%", shares),
    ]


def measure_latency(ground: Ground) -> list[Figure]:
    """Measures from publish in one process to the start of the handler in another."""
    reference, sizes = ground.reference, ground.sizes
    hand: list[list[float]] = []
    ours: list[list[float]] = []
    for _ in range(sizes.repeats):
        with ground.store() as url:
            run_alone(reference.fill, url, 0)
            hand.append(measure_waits(ground, url, reference.send, reference.receive))
        with ground.store() as url:
            run_alone(verbs.fill, url, 0)
            ours.append(measure_waits(ground, url, verbs.send, workers.receive))
    return [
        compare_values(
            name, "ms", *([measure_share(each, part) for each in side] for side in (hand, ours))
        )
        for name, part in (("latency_p50_ms", 0.5), ("latency_p99_ms", 0.99))
    ]


def measure_waits(ground: Ground, url: str, send: Send, receive: Receive) -> list[float]:
    """Skips the first messages, which pay for connections and prepared statements."""
    warm_up = ground.sizes.samples // 10
    count = ground.sizes.samples + warm_up
    return run_together(Job(send, url, count, ground.sizes.pause), Job(receive, url, count))[1][
        warm_up:
    ]


def measure_share(seconds: list[float], part: float) -> float:
    """Returns a quantile in milliseconds."""
    return 1e3 * sorted(seconds)[int(len(seconds) * part)]


def measure_idle(ground: Ground) -> list[Figure]:
    with ground.store() as url:
        used = run_alone(workers.idle, url, ground.sizes.idle)
    return [Figure("idle_cpu_percent", used, "%")]


def measure_recovery(ground: Ground) -> list[Figure]:
    """Measures from the end of a killed worker to the redelivery of its message."""
    with ground.store() as url:
        run_alone(verbs.fill, url, 1)
        job = Job(workers.outlive, url, ground.sizes.lease)
        gone_at, begun_at = await_survivor(job, job)
    return [Figure("recovery_s", begun_at - gone_at, "s")]
