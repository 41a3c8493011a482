"""Measures of PostgreSQL only: draining while an old snapshot is held."""

from contextlib import nullcontext

from bench import server_measures
from bench.figures import Figure, compare_values, summarise
from bench.ground import Ground
from bench.measures import Measures
from bench.postgres import old_snapshot
from bench.worker_measures import fill_and_drain


def drain_old_snapshot(ground: Ground) -> list[Figure]:
    """Compares the third drain under an old snapshot with one without, and with the first."""
    without: list[float] = []
    with_one: list[float] = []
    flat: list[float] = []
    for _ in range(ground.sizes.repeats):
        without.append(three_drains(ground, held=False)[-1])
        first, *_, last = three_drains(ground, held=True)
        with_one.append(last)
        flat.append(last / first)
    return [
        compare_values("drain_old_snapshot", "msg/s", without, with_one),
        summarise("old_snapshot_flat", "x", flat),
    ]


def three_drains(ground: Ground, *, held: bool) -> list[float]:
    """The first two drains process the promised 120,000 messages; the third is measured."""
    count = ground.sizes.messages
    with ground.store() as url, old_snapshot(url) if held else nullcontext():
        return [count / fill_and_drain(url, count).seconds for _ in range(3)]


MEASURES: Measures = server_measures.MEASURES | {
    ("drain_old_snapshot", "old_snapshot_flat"): drain_old_snapshot,
}
