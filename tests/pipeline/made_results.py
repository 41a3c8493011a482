"""Results as a run leaves them, made without Spark: hours of metrics, a file for each day."""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.result_tables import ResultFile, Results, ResultTable

METRICS: ResultTable = "metrics_hour"


def publish_results(lake: str, number: int, days: Sequence[int]) -> None:
    """Of these days of January 2026, in the place of what earlier runs made of them."""
    found = lakes.find(lake)
    old = result_tables.read_newest(found)
    kept = (
        [file for file in old.list_files(METRICS) if int(file.day[-2:]) not in days] if old else []
    )
    made = [write_day(found, number, f"2026-01-{day:02}") for day in days]
    whole = Results(result_tables.VERSION, found.label.id, number, 1, 0, "", (*kept, *made))
    result_tables.publish(found, whole)


def write_day(lake: lakes.Lake, number: int, day: str) -> ResultFile:
    """One hour of 20 attempts, of which a part failed by day."""
    name = f"{result_tables.make_run_folder(METRICS, number)}/day={day}/part-0.parquet"
    hour = pa.array([datetime.fromisoformat(f"{day}T05:00Z")], pa.timestamp("us", "UTC"))
    row = {
        "hour": hour, "queue_id": [1], "queue": ["mail"], "type": ["invoice"],
        "published": [number], "attempts": [20], "failure_rate": [0.05 * int(day[-2:])],
        "wait_p95": [1.5],
    }  # fmt: skip
    with lake.files.new(name) as path:
        parquet.write_table(pa.table(row), path)
    return ResultFile(METRICS, day, name, 1)
