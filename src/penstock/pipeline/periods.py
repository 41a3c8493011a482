"""Converts hours and days given as Unix seconds. Does not import Spark."""

from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3_600, 86_400


def to_datetime(hour: int) -> datetime:
    return datetime.fromtimestamp(hour, UTC)


def to_day(hour: int) -> str:
    return f"{to_datetime(hour):%Y-%m-%d}"
