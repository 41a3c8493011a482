"""Finds the hours and messages that new rows of a lake affect."""

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.model.message import Moment
from penstock.pipeline.analytics.time import floor_time
from penstock.pipeline.periods import HOUR


class HourSpan(Struct, frozen=True):
    """The hours of rows, the range of their message ids, and the latest moment."""

    hours: tuple[int, ...]
    first_id: int
    last_id: int
    reached: Moment


def make_span(history: DataFrame, messages: DataFrame) -> HourSpan:
    """An attempt affects the hour of its claim and the hour of its end."""
    no_id = f.lit(None).cast("long").alias("id")
    moments = (
        history.select(f.explode(f.array("at", "claimed_at")).alias("moment"), "id")
        .filter("moment is not null")
        .union(messages.select(f.col("created_at").alias("moment"), no_id))
    )
    hour = f.unix_seconds(floor_time("moment", HOUR)).alias("hour")
    found = moments.groupBy(hour).agg(
        f.unix_micros(f.max("moment")).alias("reached"),
        f.min("id").alias("first_id"),
        f.max("id").alias("last_id"),
    )
    rows = found.collect()
    ids = [row for row in rows if row.first_id is not None]
    return HourSpan(
        tuple(sorted(row.hour for row in rows)),
        min((row.first_id for row in ids), default=0),
        max((row.last_id for row in ids), default=0),
        max((row.reached for row in rows), default=0),
    )


def filter_between(rows: DataFrame, first_id: int, last_id: int) -> DataFrame:
    """Keeps rows of affected messages. Spark skips files without any."""
    number: Column = f.col("id")
    return rows.filter((number >= first_id) & (number <= last_id))
