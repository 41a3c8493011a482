"""Reads report data of the last hours from the result tables, without Spark."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute
from msgspec import Struct

from penstock.errors import InvalidInput, InvalidState
from penstock.model.message import Moment
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.result_tables import Results, ResultTable
from penstock.pipeline.periods import DAY, HOUR, to_datetime, to_day
from penstock.rules.anomaly_text import Row
from penstock.rules.histograms import compute_quantile

COUNTS = ("published", "attempts", "completed", "failures", "retried", "lost", "dead", "expired")
TIMES = ("wait", "run")
PERCENTS = (50, 95, 99)
SEVERITY_ORDER = {"critical": 0, "warning": 1, "info": 2}
# Maximum rows of a table in reports and documents.
MAX_ANOMALIES, MAX_CLUSTERS, MAX_CONSUMERS = 1_000, 200, 200


class ReportData(Struct, frozen=True):
    """Report data of a period: rows by hour for each queue and overall."""

    # `made_at` is when the results were computed.
    lake: str
    store: str
    made_at: Moment
    reached: Moment
    hours: tuple[int, ...]
    queues: dict[int, str]
    by_queue: dict[int, dict[int, Row]]
    totals: dict[int, Row]
    overall: dict[int, Row]
    total: Row
    backlog: dict[int, list[Row]]
    consumers: list[Row]
    anomalies: list[Row]
    clusters: list[Row]


class ResultsReader:
    """Reads result tables of the days in a period."""

    def __init__(self, lake: Lake, found: Results, hours: Sequence[int]) -> None:
        self.lake = lake
        self.found = found
        self.days = {to_day(hour) for hour in hours}
        self.begin, self.end = to_datetime(hours[0]), to_datetime(hours[-1] + HOUR)

    def table(self, name: ResultTable, moment: str, columns: list[str] | None = None) -> Any:
        files = self.found.list_files(name, self.days)
        if not files:
            return None
        # Nullability may differ between files and does not matter here.
        parts = [self.read(each.path, columns) for each in files]
        whole = pa.concat_tables(parts, promote_options="permissive")
        whole = whole.set_column(
            whole.schema.get_field_index(moment),
            moment,
            whole.column(moment).cast(pa.timestamp("us", "UTC")),
        )
        at = whole.column(moment)
        return whole.filter(
            compute.and_(compute.greater_equal(at, self.begin), compute.less(at, self.end))
        )

    def read(self, path: str, columns: list[str] | None) -> Any:
        try:
            with self.lake.files.parquet(path) as file:
                return file.read(columns)
        except (pa.ArrowException, OSError) as error:
            raise InvalidState(
                f"cannot read {path!r} of lake {self.lake.where!r}: {error}; delete its folder"
                f" {result_tables.FOLDER} and the next penstock pipeline run rebuilds all tables"
            ) from None

    def rows(self, name: ResultTable, moment: str) -> list[Row]:
        found = self.table(name, moment)
        rows: list[Row] = [] if found is None else found.to_pylist()
        return rows


def read_report_data(lake: Lake, hours: int) -> ReportData:
    """Reads the last `hours` hours of the lake."""
    found = result_tables.read_newest(lake)
    if found is None or not found.through:
        raise InvalidInput(
            f"lake {lake.where!r} has no results yet; run penstock pipeline run first"
        )
    last = found.reached // 1_000_000
    last -= last % HOUR
    period = tuple(range(last - (hours - 1) * HOUR, last + HOUR, HOUR))
    return gather_data(ResultsReader(lake, found, period), period)


def gather_data(reader: ResultsReader, period: tuple[int, ...]) -> ReportData:
    table = reader.table("metrics_hour", "hour")
    queues = {} if table is None else name_queues(table)
    by_queue: dict[int, dict[int, Row]] = {queue_id: {} for queue_id in queues}
    for (queue_id, hour), row in sum_rows(table, ["queue_id", "hour"]).items():
        by_queue[queue_id][int(hour.timestamp())] = row
    return ReportData(
        lake=reader.lake.where,
        store=reader.found.store,
        made_at=reader.found.made_at,
        reached=reader.found.reached,
        hours=period,
        queues=queues,
        by_queue=by_queue,
        totals={key[0]: row for key, row in sum_rows(table, ["queue_id"]).items()},
        overall={int(key[0].timestamp()): row for key, row in sum_rows(table, ["hour"]).items()},
        total=next(iter(sum_rows(table, []).values()), make_empty_row()),
        backlog=read_backlog(reader),
        consumers=read_consumers(reader),
        anomalies=read_anomalies(reader),
        clusters=read_clusters(reader, period),
    )


def name_queues(table: Any) -> dict[int, str]:
    """Prefixes the scope unless it is the default scope."""
    names: dict[int, str] = {}
    for row in table.select(["queue_id", "scope", "queue"]).to_pylist():
        queue_id, scope, queue = row.values()
        if queue is not None or queue_id not in names:
            shown = queue or f"queue {queue_id}"
            names[queue_id] = shown if scope in (None, "default") else f"{scope}/{shown}"
    return dict(sorted(names.items(), key=lambda pair: pair[1]))


def make_empty_row() -> Row:
    return add_rates(make_empty_times() | dict.fromkeys(COUNTS, 0))


def sum_rows(table: Any, keys: list[str]) -> dict[tuple[Any, ...], Row]:
    """Sums counts and histograms by key, and computes percentiles."""
    if table is None or not table.num_rows:
        return {}
    if not keys:
        table, keys = table.append_column("all", pa.array([0] * table.num_rows)), ["all"]
    sums = table.group_by(keys).aggregate([(name, "sum") for name in COUNTS]).to_pylist()
    found = {tuple(row[key] for key in keys): count_row(row) for row in sums}
    for name in TIMES:
        for key, buckets in merge_histograms(table, keys, f"{name}_histogram").items():
            for percent in PERCENTS:
                found[key][f"{name}_p{percent}"] = compute_quantile(sorted(buckets), percent)
    return found


def count_row(row: Row) -> Row:
    return add_rates(make_empty_times() | {name: row[f"{name}_sum"] for name in COUNTS})


def make_empty_times() -> Row:
    return {f"{name}_p{percent}": None for name in TIMES for percent in PERCENTS}


def add_rates(row: Row) -> Row:
    tried = row["attempts"]
    rates = {
        "failure_rate": row["failures"] / tried if tried else None,
        "retry_rate": row["retried"] / tried if tried else None,
    }
    return row | rates


def merge_histograms(
    table: Any, keys: list[str], name: str
) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
    lists = table.column(name).combine_chunks()
    owners, flat = compute.list_parent_indices(lists), compute.list_flatten(lists)
    spread = pa.table(
        {key: table.column(key).combine_chunks().take(owners) for key in keys}
        | {"bucket": flat.field("bucket"), "count": flat.field("count")}
    )
    found: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for row in spread.group_by([*keys, "bucket"]).aggregate([("count", "sum")]).to_pylist():
        key = tuple(row[each] for each in keys)
        found.setdefault(key, []).append((row["bucket"], row["count_sum"]))
    return found


def read_backlog(reader: ResultsReader) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in reader.rows("backlog_minute", "minute"):
        kept = {name: row[name] for name in ("minute", "arrived", "left", "backlog", "dead")}
        found.setdefault(row["queue_id"], []).append(kept)
    return {key: sorted(rows, key=lambda row: row["minute"]) for key, rows in found.items()}


def read_consumers(reader: ResultsReader) -> list[Row]:
    """Returns the busiest consumers first."""
    found: dict[tuple[str, str | None], Row] = {}
    for row in reader.rows("consumer_hour", "hour"):
        key = row["consumer"], row["queue"]
        old = found.get(key)
        found[key] = row if old is None else add_consumers(old, row)
    ranked = sorted(found.values(), key=lambda row: (-row["attempts"], row["consumer"]))
    return ranked[:MAX_CONSUMERS]


def add_consumers(one: Row, other: Row) -> Row:
    sums = {
        name: one[name] + other[name]
        for name in ("attempts", "completed", "failures", "lost", "busy")
    }
    return (
        one
        | sums
        | {
            "run_max": max(one["run_max"], other["run_max"]),
            "first_at": min(one["first_at"], other["first_at"]),
            "last_at": max(one["last_at"], other["last_at"]),
        }
    )


def read_anomalies(reader: ResultsReader) -> list[Row]:
    """Sorts by severity, then newest first."""
    rows = reader.rows("anomaly", "hour")
    return sorted(rows, key=make_severity_key)[:MAX_ANOMALIES]


def make_severity_key(row: Row) -> tuple[Any, ...]:
    return SEVERITY_ORDER[row["severity"]], -row["hour"].timestamp(), row["kind"], row["id"]


def read_clusters(reader: ResultsReader, period: Iterable[int]) -> list[Row]:
    """Reads whole days, because a cluster covers a day."""
    days = sorted({hour - hour % DAY for hour in period})
    whole = ResultsReader(reader.lake, reader.found, [*days, days[-1] + DAY - HOUR])
    rows = whole.rows("triage", "day_at")
    return sorted(rows, key=lambda row: (-row["count"], row["id"]))[:MAX_CLUSTERS]
