"""Finds anomalies in recomputed hours and in hours that have become complete."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.model.anomalies import AnomalyThresholds
from penstock.model.message import Moment
from penstock.model.queue import Queue
from penstock.pipeline.analytics import anomalies
from penstock.pipeline.analytics.partitions import PartitionWriter
from penstock.pipeline.analytics.seasonal import SERIES, find_seasonal, make_hours
from penstock.pipeline.analytics.time import HourSpan, filter_hours, floor_time, is_in_hours
from penstock.pipeline.lake.result_tables import ResultTable
from penstock.pipeline.periods import DAY, HOUR, to_datetime, to_day

TABLE: ResultTable = "anomaly"


class AnomalyJob:
    def __init__(
        self,
        make: PartitionWriter,
        rules: AnomalyThresholds,
        span: HourSpan,
        reached: Moment,
        queues: Sequence[Queue],
    ) -> None:
        self.queues = queues
        self.make = make
        self.rules = rules
        self.hours = span.hours
        # The current hour is not judged until it is over.
        self.end = get_hour(max(reached, span.reached))
        self.first = min(*span.hours, get_hour(reached) if reached else self.end)

    def remake(self, claims: DataFrame, rows: DataFrame, messages: DataFrame) -> None:
        days = {to_day(hour) for hour in self.hours} | self.list_days(self.first, self.end)
        found = [
            anomalies.find_by_message(rows, self.rules),
            anomalies.find_by_hour(self.read_hours("metrics_hour"), self.rules),
            anomalies.find_stuck_consumers(self.read_hours("consumer_hour"), self.rules),
            anomalies.find_claim_bursts(claims, self.rules),
            anomalies.find_bulk_publishes(messages, self.rules),
        ]
        if self.has_baseline():
            found.append(self.find_unusual())
        made = anomalies.collect_anomalies(found, self.rules, self.queues)
        old = self.make.read(TABLE, self.make.old.list_files(TABLE, days)).filter(self.is_kept())
        self.make.put(TABLE, old.unionByName(made), days)

    def read_hours(self, table: ResultTable) -> DataFrame:
        days = {to_day(hour) for hour in self.hours}
        return filter_hours(self.make.table(table, days), "hour", self.hours)

    def is_kept(self) -> Column:
        unusual = f.col("kind").isin(*SERIES)
        again = is_in_hours(floor_time("hour", HOUR), self.hours)
        judged = f.col("hour") >= f.lit(to_datetime(self.first))
        return ~f.when(unusual, judged).otherwise(again)

    def has_baseline(self) -> bool:
        """True if there are enough earlier days to compare with."""
        days = {file.day for file in self.make.files if file.table == "metrics_hour"}
        return self.end > self.first and len(days) > self.rules.season_least_days

    def find_unusual(self) -> DataFrame:
        begin = self.first - self.rules.season_days * DAY
        known = self.make.table("metrics_hour", self.list_days(begin, self.end))
        hours = make_hours(known, begin, self.end)
        return find_seasonal(known, hours, self.rules, self.first, self.end)

    def list_days(self, first: int, end: int) -> set[str]:
        return {to_day(hour) for hour in range(first - first % DAY, end, DAY)}


def get_hour(moment: Moment) -> int:
    seconds = moment // 1_000_000
    return seconds - seconds % HOUR
