"""The measures: what is run, in which order, and what is made of the runs."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias

from msgspec import Struct

from bench import children
from bench.processes import Job, alone, together
from bench.references import sqlite_loops
from bench.workload import WARM_UP


class Sizes(Struct, frozen=True):
    """How much is run. Each side runs `repeats` times, in turn, and the median counts."""

    repeats: int = 5
    seconds: float = 1.0
    messages: int = 60_000
    backlog: int = 1_000_000
    head: int = 10_000
    samples: int = 200
    pause: float = 0.05
    idle: float = 10.0
    lives: int = 200_000
    # Fills the page cache, which is kept and does not grow.
    first_lives: int = 250_000


QUICK = Sizes(1, 0.1, 2_000, 10_000, 2_000, 10, 0.01, 0.2, 2_000, 1_000)


class Figure(Struct, frozen=True):
    """One line of the table. `reference` is what `value` is compared with, in the same unit."""

    measure: str
    value: float
    unit: str
    reference: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None


Run: TypeAlias = Callable[[Path], float]


class Ground:
    """Where the runs take place: each on a fresh file below `directory`."""

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.directory = directory
        self.sizes = sizes

    @contextmanager
    def file(self) -> Iterator[Path]:
        with TemporaryDirectory(dir=self.directory) as place:
            yield Path(place) / "queue.db"

    def in_turn(self, reference: Run, ours: Run) -> tuple[float, float]:
        """The medians of both: reference, ours, reference, ours, and so on."""
        references: list[float] = []
        values: list[float] = []
        for _ in range(self.sizes.repeats):
            for run, results in ((reference, references), (ours, values)):
                with self.file() as path:
                    results.append(run(path))
        return median(references), median(values)


def url(path: Path) -> str:
    return f"sqlite:///{path.resolve()}"


def publish_one(ground: Ground) -> list[Figure]:
    return publish(ground, "publish_one", 1)


def publish_64_callers(ground: Ground) -> list[Figure]:
    return publish(ground, "publish_64_callers", 64)


def publish(ground: Ground, measure: str, callers: int) -> list[Figure]:
    seconds = ground.sizes.seconds
    reference, value = ground.in_turn(
        lambda path: alone(sqlite_loops.publish_one, str(path), seconds),
        lambda path: alone(children.publish, url(path), seconds, callers),
    )
    return [Figure(measure, value, "msg/s", reference)]


def bulk(ground: Ground) -> list[Figure]:
    count = ground.sizes.messages
    reference, value = ground.in_turn(
        lambda path: alone(sqlite_loops.bulk, str(path), count),
        lambda path: alone(children.bulk, url(path), count),
    )
    return [Figure("bulk", value, "msg/s", reference)]


def drain(ground: Ground) -> list[Figure]:
    count = ground.sizes.messages
    reference, value = ground.in_turn(
        lambda path: drain_by_hand(path, count), lambda path: fill_and_drain(path, count)
    )
    return [Figure("drain", value, "msg/s", reference)]


def drain_by_hand(path: Path, count: int) -> float:
    alone(sqlite_loops.fill, str(path), count + WARM_UP)
    return alone(sqlite_loops.drain, str(path), count)


def fill_and_drain(path: Path, count: int) -> float:
    alone(children.fill, url(path), count + WARM_UP)
    return drain_head(path, count)


def drain_head(path: Path, count: int) -> float:
    drained, seconds = alone(children.drain, url(path), count)
    return drained / seconds


def drain_two_workers(ground: Ground) -> list[Figure]:
    """Against one worker; with the share of the one that got less."""
    count = ground.sizes.messages
    shares: list[float] = []

    def two_workers(path: Path) -> float:
        alone(children.fill, url(path), count + 2 * WARM_UP)
        workers = together(*(Job(children.drain, url(path), count) for _ in range(2)))
        counts = [drained for drained, _ in workers]
        shares.append(100 * min(counts) / sum(counts))
        return sum(counts) / max(seconds for _, seconds in workers)

    reference, value = ground.in_turn(lambda path: fill_and_drain(path, count), two_workers)
    return [
        Figure("drain_two_workers", value, "msg/s", reference),
        Figure("smaller_share", median(shares), "%"),
    ]


def backlog_1m(ground: Ground) -> list[Figure]:
    """The head of a long line against a line that is no longer than that. Filled once."""
    head = ground.sizes.head
    with ground.file() as full:
        alone(children.fill, url(full), ground.sizes.backlog)
        reference, value = ground.in_turn(
            lambda path: fill_and_drain(path, head), lambda _: drain_head(full, head)
        )
    return [Figure("backlog_1m", value, "msg/s", reference)]


def latency(ground: Ground) -> list[Figure]:
    """From the call of publish in one process to the message in another that waits."""
    sizes = ground.sizes
    waits: list[float] = []
    for _ in range(sizes.repeats):
        with ground.file() as path:
            create_queue(path)
            sender = Job(children.send, url(path), sizes.samples, sizes.pause)
            receiver = Job(children.receive, url(path), sizes.samples)
            waits += together(sender, receiver)[1]
    waits.sort()
    return [
        Figure("latency_p50_ms", 1e3 * waits[len(waits) // 2], "ms"),
        Figure("latency_p99_ms", 1e3 * waits[len(waits) * 99 // 100], "ms"),
    ]


def create_queue(path: Path) -> None:
    alone(children.fill, url(path), 0)


def idle(ground: Ground) -> list[Figure]:
    with ground.file() as path:
        used = alone(children.idle, url(path), ground.sizes.idle)
    return [Figure("idle_cpu_percent", used, "%")]


def memory(ground: Ground) -> list[Figure]:
    with ground.file() as path:
        sizes = ground.sizes
        growth = alone(children.memory, url(path), sizes.lives, sizes.first_lives)
    return [Figure("memory_growth_mb", growth, "MB")]


MEASURES: dict[tuple[str, ...], Callable[[Ground], list[Figure]]] = {
    ("publish_one",): publish_one,
    ("publish_64_callers",): publish_64_callers,
    ("bulk",): bulk,
    ("drain",): drain,
    ("drain_two_workers", "smaller_share"): drain_two_workers,
    ("backlog_1m",): backlog_1m,
    ("latency_p50_ms", "latency_p99_ms"): latency,
    ("idle_cpu_percent",): idle,
    ("memory_growth_mb",): memory,
}
NAMES = [name for names in MEASURES for name in names]


def measure(ground: Ground, wanted: Collection[str]) -> Iterator[Figure]:
    """The wanted figures, each as soon as it is known."""
    for names, take in MEASURES.items():
        if not set(names).isdisjoint(wanted):
            yield from (figure for figure in take(ground) if figure.measure in wanted)
