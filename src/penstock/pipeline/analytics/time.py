"""Column expressions for hours and days, and filters by them."""

from collections.abc import Collection, Sequence

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.model.message import Moment
from penstock.pipeline.periods import HOUR, to_datetime

# Names of a queue. They are null for a deleted queue and may change within an hour.
NAMES = ("tenant", "scope", "queue")


def floor_time(moment: str, seconds: int) -> Column:
    """Rounds a moment down to its minute, hour or day."""
    micros = f.unix_micros(moment)
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(seconds * 1_000_000)))


def name_columns() -> list[Column]:
    """Aggregates the names. Use on few rows, because Spark sorts all rows for max() of a string."""
    return [f.max(name).alias(name) for name in NAMES]


def filter_hours(
    rows: DataFrame, moment: str, begins: Collection[int], length: int = HOUR
) -> DataFrame:
    """Keeps rows in the given hours or days. Spark skips files without any."""
    if not begins:
        return rows.filter("false")
    low, high = to_datetime(min(begins)), to_datetime(max(begins) + length)
    near = rows.filter((f.col(moment) >= f.lit(low)) & (f.col(moment) < f.lit(high)))
    if len(begins) == (max(begins) - min(begins)) // length + 1:
        return near
    return near.filter(is_in_hours(floor_time(moment, length), sorted(begins)))


def is_in_hours(begin: Column, begins: Sequence[int]) -> Column:
    return f.unix_seconds(begin).isin(list(begins))


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
