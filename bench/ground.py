"""The store under test and the sizes of the runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct

from bench.subjects import Subject

# Called with the URL of an empty store.
Run: TypeAlias = Callable[[str], float]


class Sizes(Struct, frozen=True):
    """Sizes of the runs. Both sides run `repeats` times in turn, and the median counts."""

    repeats: int = 5
    seconds: float = 1.0
    messages: int = 60_000
    peer_messages: int = 10_000
    backlog: int = 1_000_000
    head: int = 10_000
    samples: int = 1_000
    pause: float = 0.03
    idle: float = 10.0
    lives: int = 200_000
    # Fills the page cache first, which then stops growing.
    first_lives: int = 250_000
    # The lease of the message whose worker is killed; None is the queue's default.
    lease: float | None = None


QUICK = Sizes(1, 0.1, 2_000, 200, 10_000, 2_000, 10, 0.01, 0.2, 2_000, 1_000, 0.5)


class Ground:
    def __init__(self, subject: Subject, sizes: Sizes) -> None:
        self.subject = subject
        self.reference = subject.reference
        self.sizes = sizes

    @contextmanager
    def store(self) -> Iterator[str]:
        with self.subject.fresh() as url:
            yield url

    def in_turn(self, *runs: Run) -> list[list[float]]:
        """Alternates between the runs, and returns the results of each."""
        results: list[list[float]] = [[] for _ in runs]
        for _ in range(self.sizes.repeats):
            for run, kept in zip(runs, results, strict=True):
                with self.store() as url:
                    kept.append(run(url))
        return results
