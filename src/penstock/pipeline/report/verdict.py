"""Rules: what of a period an operator should know first, and how bad it is."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from penstock.pipeline.periods import DAY
from penstock.pipeline.report.data import GRAVITY, ReportData
from penstock.pipeline.report.format import length, number, share

# Shares of all attempts that failed.
FAILURE_WARNING, FAILURE_CRITICAL = 0.05, 0.25
# What the backlog grew by, as a share of what was published; fewer messages than this never count.
GROWTH_WARNING, GROWTH_CRITICAL = 0.1, 0.5
MIN_GROWTH_MESSAGES = 100
MAX_AGE_S = DAY


class Concern(Struct, frozen=True):
    severity: str
    text: str


def find_concerns(told: ReportData, now: float) -> list[Concern]:
    """Returns the gravest first; nothing if all is as it should be. `now` is in seconds."""
    found = [
        *judge_failures(told),
        *judge_backlog(told),
        *judge_age(told, now),
        *judge_anomalies(told),
    ]
    return sorted(found, key=lambda each: GRAVITY[each.severity])


def judge_failures(told: ReportData) -> Iterator[Concern]:
    rate = told.total["failure_rate"]
    if severity := grave(rate, FAILURE_WARNING, FAILURE_CRITICAL):
        yield Concern(severity, f"{share(rate)} of attempts failed")


def judge_backlog(told: ReportData) -> Iterator[Concern]:
    grown = sum(rows[-1]["backlog"] - before(rows[0]) for rows in told.backlog.values() if rows)
    part = grown / max(told.total["published"], 1)
    severity = grave(part, GROWTH_WARNING, GROWTH_CRITICAL)
    if severity and grown >= MIN_GROWTH_MESSAGES:
        yield Concern(severity, f"the backlog grew by {number(grown)} messages")


def before(row: dict[str, int]) -> int:
    """Returns the backlog at the begin of a minute; the row has it at the end."""
    return row["backlog"] - row["arrived"] + row["left"]


def judge_age(told: ReportData, now: float) -> Iterator[Concern]:
    age = now - told.reached / 1_000_000
    if age > MAX_AGE_S:
        yield Concern("warning", f"the newest data is {length(age)} old")


def judge_anomalies(told: ReportData) -> Iterable[Concern]:
    kinds = {(row["severity"], row["kind"]) for row in told.anomalies}
    for severity, kind in sorted(kinds):
        if severity != "info":
            yield Concern(severity, kind.replace("_", " "))


def grave(value: float | None, warning: float, critical: float) -> str:
    """Returns a severity, or an empty text below both bounds."""
    if value is None or value < warning:
        return ""
    return "critical" if value >= critical else "warning"
