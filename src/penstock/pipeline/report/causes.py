"""Groups the failures of a period by cause, over all days, queues and types."""

from collections.abc import Iterable

from msgspec import Struct

from penstock.pipeline.report.format import Row, format_place


class CausePlace(Struct, frozen=True):
    """A queue and type with failures of a cause. A message counts once per day."""

    name: str
    count: int
    messages: int
    dead: int
    # The row of the newest day.
    newest: Row


class Cause(Struct, frozen=True):
    """An error template and where it occurred, most failures first."""

    template: str
    count: int
    messages: int
    places: tuple[CausePlace, ...]


def group_by_cause(clusters: Iterable[Row]) -> list[Cause]:
    """Returns the causes, most failures first."""
    found: dict[str, list[Row]] = {}
    for row in clusters:
        found.setdefault(row["fingerprint"], []).append(row)
    return sorted(map(make_cause, found.values()), key=lambda cause: -cause.count)


def make_cause(rows: list[Row]) -> Cause:
    by_place: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row["queue_id"], row["type"]), []).append(row)
    places = sorted(map(make_place, by_place.values()), key=lambda each: -each.count)
    return Cause(
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
