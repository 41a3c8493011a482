"""What the new rows of a lake are about."""

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.model.message import Moment
from penstock.pipeline.analytics.time import floor_time
from penstock.pipeline.periods import HOUR


class HourSpan(Struct, frozen=True):
    """The hours that rows fall in, the messages they are about, and the last moment."""

    hours: tuple[int, ...]
    first_id: int
    last_id: int
    reached: Moment


def make_span(history: DataFrame, messages: DataFrame) -> HourSpan:
    """Moments of an attempt count for its hours both when it was claimed and when it ended."""
    nobody = f.lit(None).cast("long").alias("id")
    moments = (
        history.select(f.explode(f.array("at", "claimed_at")).alias("moment"), "id")
        .filter("moment is not null")
        .union(messages.select(f.col("created_at").alias("moment"), nobody))
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
    """Rows of messages that may be concerned; files without any are not read."""
    number: Column = f.col("id")
    return rows.filter((number >= first_id) & (number <= last_id))
