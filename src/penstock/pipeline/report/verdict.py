"""Decides what an operator should know first, how severe it is, and its likely causes."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from penstock.pipeline.periods import DAY
from penstock.pipeline.report.data import SEVERITY_ORDER, ReportData
from penstock.rules.anomaly_text import (
    Row,
    format_number,
    format_place,
    format_seconds,
    format_share,
)

# Shares of failed attempts.
FAILURE_WARNING, FAILURE_CRITICAL = 0.05, 0.25
# Growth of the backlog as a share of published messages. Less than the minimum never counts.
GROWTH_WARNING, GROWTH_CRITICAL = 0.1, 0.5
MIN_GROWTH_MESSAGES = 100
MAX_AGE_S = DAY


class Concern(Struct, frozen=True):
    severity: str
    text: str


def find_concerns(report: ReportData, now: float) -> list[Concern]:
    """Returns concerns by severity, none if all is normal. `now` is in seconds."""
    found = [
        *judge_failures(report),
        *judge_backlog(report),
        *judge_age(report, now),
        *judge_anomalies(report),
    ]
    return sorted(found, key=lambda each: SEVERITY_ORDER[each.severity])


def judge_failures(report: ReportData) -> Iterator[Concern]:
    rate = report.total["failure_rate"]
    if severity := choose_severity(rate, FAILURE_WARNING, FAILURE_CRITICAL):
        yield Concern(severity, f"{format_share(rate)} of attempts failed")


def judge_backlog(report: ReportData) -> Iterator[Concern]:
    grown = sum(
        rows[-1]["backlog"] - get_backlog_before(rows[0])
        for rows in report.backlog.values()
        if rows
    )
    part = grown / max(report.total["published"], 1)
    severity = choose_severity(part, GROWTH_WARNING, GROWTH_CRITICAL)
    if severity and grown >= MIN_GROWTH_MESSAGES:
        yield Concern(severity, f"the backlog grew by {format_number(grown)} messages")


def get_backlog_before(row: dict[str, int]) -> int:
    """Returns the backlog at the start of a minute; the row has it at the end."""
    return row["backlog"] - row["arrived"] + row["left"]


def judge_age(report: ReportData, now: float) -> Iterator[Concern]:
    age = now - report.reached / 1_000_000
    if age > MAX_AGE_S:
        yield Concern("warning", f"the newest data is {format_seconds(age)} old")


def judge_anomalies(report: ReportData) -> Iterable[Concern]:
    kinds = {(row["severity"], row["kind"]) for row in report.anomalies}
    for severity, kind in sorted(kinds):
        if severity != "info":
            yield Concern(severity, kind.replace("_", " "))


def choose_severity(value: float | None, warning: float, critical: float) -> str:
    """Returns a severity, or "" below both bounds."""
    if value is None or value < warning:
        return ""
    return "critical" if value >= critical else "warning"


class CausePlace(Struct, frozen=True):
    """A queue and type with failures of a cause. A message counts once per day."""

    name: str
    count: int
    messages: int
    dead: int
    # The row of the newest day.
    newest: Row


class FailureCause(Struct, frozen=True):
    """An error template and where it occurred, most failures first."""

    template: str
    count: int
    messages: int
    places: tuple[CausePlace, ...]


def group_by_cause(clusters: Iterable[Row]) -> list[FailureCause]:
    """Returns the causes, most failures first."""
    found: dict[str, list[Row]] = {}
    for row in clusters:
        found.setdefault(row["fingerprint"], []).append(row)
    return sorted(map(make_cause, found.values()), key=lambda cause: -cause.count)


def make_cause(rows: list[Row]) -> FailureCause:
    by_place: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row["queue_id"], row["type"]), []).append(row)
    places = sorted(map(make_place, by_place.values()), key=lambda each: -each.count)
    return FailureCause(
        rows[0]["template"],
        sum(each.count for each in places),
        sum(each.messages for each in places),
        tuple(places),
    )


def make_place(rows: list[Row]) -> CausePlace:
    newest = max(rows, key=lambda row: row["last_at"])
    return CausePlace(
        name=format_place(newest),
        count=sum(row["count"] for row in rows),
        messages=sum(row["messages"] for row in rows),
        dead=sum(row["dead"] for row in rows),
        newest=newest,
    )
