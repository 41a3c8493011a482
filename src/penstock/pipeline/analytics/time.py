"""Column expressions for hours and days, and filters by them."""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.periods import HOUR, to_datetime

# Names of a queue. They are null for a deleted queue and may change within an hour.
NAMES = ("tenant", "scope", "queue")


def floor_time(moment: str, seconds: int) -> Column:
    """Rounds a moment down to its minute, hour or day."""
    micros = f.unix_micros(moment)
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(seconds * 1_000_000)))


def to_epoch(moment: str) -> Column:
    return f.unix_seconds(moment)


def format_day(hour: str) -> Column:
    return f.date_format(hour, "yyyy-MM-dd")


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
