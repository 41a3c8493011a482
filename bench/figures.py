"""Results of a measure: medians and the range of single runs."""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One line of the table. `value` is compared with `reference`, in the same unit.

    `low` and `high` bound the ratios of single runs, or their values without a reference.
    """

    measure: str
    value: float | None
    unit: str
    reference: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.value and self.reference else None


def compare_values(
    measure: str, unit: str, references: Sequence[float], values: Sequence[float]
) -> Figure:
    """Compares each value with the reference that ran just before it."""
    ratios = [value / reference for reference, value in zip(references, values, strict=True)]
    return Figure(
        measure, median(values), unit, median(references), low=min(ratios), high=max(ratios)
    )


def summarise(measure: str, unit: str, values: Sequence[float]) -> Figure:
    return Figure(measure, median(values), unit, low=min(values), high=max(values))


def make_absent(measure: str, unit: str, why: str) -> Figure:
    return Figure(measure, None, unit, note=why)
