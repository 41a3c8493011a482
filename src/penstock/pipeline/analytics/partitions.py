"""Replaces rows of result tables by day partition."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.analytics import backlog
from penstock.pipeline.analytics.tables import MOMENTS, SCHEMAS, shape_table
from penstock.pipeline.analytics.time import floor_time, is_in_hours
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import Manifest
from penstock.pipeline.lake.reader import list_paths, read_files, read_parts
from penstock.pipeline.lake.result_tables import ResultFile, Results, ResultTable
from penstock.pipeline.lake.schema import MOMENT, Table
from penstock.pipeline.periods import DAY, HOUR, to_day


class PartitionWriter:
    def __init__(self, spark: SparkSession, lake: Lake, old: Results, number: int) -> None:
        self.spark = spark
        self.lake = lake
        self.old = old
        self.number = number
        self.files: list[ResultFile] = list(old.files)
        # Several threads write tables.
        self.changing = Lock()

    def source(self, table: Table, manifests: Sequence[Manifest]) -> DataFrame:
        return read_parts(self.spark, self.lake.files, list_paths(manifests, table), table)

    def table(self, table: ResultTable, days: Collection[str] | None = None) -> DataFrame:
        """Returns the current table, including what this run has written."""
        return self.read(table, [each for each in self.files if choose_days(each, table, days)])

    def read(self, table: ResultTable, files: Iterable[ResultFile]) -> DataFrame:
        names = [file.path for file in files]
        return read_files(self.spark, self.lake.files, names, SCHEMAS[table])

    def append(self, table: ResultTable, made: DataFrame, merged: Collection[str]) -> int:
        """Adds rows, and rewrites the `merged` days with them.

        Returns how many rows were added.
        """
        old = self.old.list_files(table, merged)
        if old:
            known = self.read(table, old)
            made = known.unionByName(made.select(*known.columns))
        written = self.put(table, made, merged)
        return sum(file.rows for file in written) - sum(file.rows for file in old)

    def replace(self, table: ResultTable, made: DataFrame, begins: Collection[int]) -> None:
        """Replaces the rows of the hours or days that start at `begins` with `made`."""
        days = {to_day(each) for each in begins}
        if self.old.list_files(table, days):
            length = DAY if table == "triage" else HOUR
            rest = self.read(table, self.old.list_files(table, days)).filter(
                ~is_in_hours(floor_time(MOMENTS[table], length), sorted(begins))
            )
            made = rest.unionByName(made.select(*rest.columns))
        self.put(table, made, days)

    def put(self, table: ResultTable, rows: DataFrame, days: Collection[str]) -> list[ResultFile]:
        """Writes rows in place of the table's files of these days."""
        spread = self.spread_by_day(shape_table(rows, table))
        written = result_tables.write(self.lake, spread, table, self.number)
        with self.changing:
            kept = [each for each in self.files if not choose_days(each, table, days)]
            self.files = [*kept, *written]
        return written

    def spread_by_day(self, rows: DataFrame) -> DataFrame:
        """Writes one file per day, or several for a large day if Spark plans adaptively."""
        day = f.col("day")
        adaptive = self.spark.conf.get("spark.sql.adaptive.enabled") == "true"
        return rows.hint("rebalance", day) if adaptive else rows.repartition(day)

    def replace_backlog(self, rows: DataFrame, messages: DataFrame, hours: Sequence[int]) -> None:
        """Recomputes this day and later ones, which start from the backlog of the day before."""
        table: ResultTable = "backlog_minute"
        first = to_day(min(hours))
        later = [each for each in self.old.list_files(table) if each.day >= first]
        before = max(
            (each.day for each in self.old.list_files(table) if each.day < first), default=None
        )
        # Small and used twice.
        fresh = backlog.make_changes(rows, messages).persist()
        kept = self.read(table, later).filter(
            ~is_in_hours(floor_time("minute", HOUR), sorted(hours))
        )
        changed = fresh.unionByName(kept.select(*fresh.columns)) if later else fresh
        carried = backlog.keep_last(self.read(table, self.old.list_files(table, {before or ""})))
        days = {to_day(hour) for hour in hours} | {each.day for each in later}
        self.put(table, backlog.make_backlog(changed, carried, self.starts(days)), days)
        fresh.unpersist()

    def starts(self, days: Collection[str]) -> DataFrame:
        moments = [datetime.fromisoformat(f"{day}T00:00:00Z") for day in sorted(days)]
        return self.spark.createDataFrame(pa.table({"day_at": pa.array(moments, MOMENT)}))


def choose_days(file: ResultFile, table: ResultTable, days: Collection[str] | None) -> bool:
    return file.table == table and (days is None or file.day in days)
