"""An hour is unusual if the same hour of the days before says so, as plain Python does."""

from datetime import datetime
from statistics import median

from pyspark.sql import SparkSession

from penstock.model.anomalies import AnomalyThresholds
from penstock.pipeline.analytics.seasonal import (
    MAD_TO_SIGMA,
    SERIES,
    SMALL_PART,
    find_seasonal,
    make_hours,
)
from penstock.pipeline.periods import DAY, HOUR, to_datetime
from penstock.testing.simulation import START
from tests.extent import LONG

BEGIN = START // 1_000_000
DAYS = 9
RULES = AnomalyThresholds(season_days=6, season_least_days=3, season_spreads=4.0, season_least=120)
COLUMNS = """hour timestamp, queue_id long, type string, tenant string, scope string, queue string,
    attempts long, completed long, failure_rate double, wait_p95 double, run_p95 double"""


def value(day: int, hour: int) -> tuple[int, float | None, float, float]:
    """Every night is quiet, the last day is not like the others, and on one nothing ran."""
    completed = 100 + 10 * hour + day * 7 % 5
    if day == DAYS - 1:
        return (completed * 3 if hour == 5 else completed), 0.4, 9.0 if hour == 7 else 0.5, 0.1
    return completed, None if hour == 3 else 0.01 * (day % 3), 0.5 + day % 4, 0.1


def list_known() -> dict[int, tuple[int, float | None, float, float]]:
    """By the beginning of the hour. The series begins on the second day, at noon."""
    return {
        BEGIN + day * DAY + hour * HOUR: value(day, hour)
        for day in range(DAYS)
        for hour in range(24)
        if (day, hour) >= (1, 12) and not (day == 6 and hour == 9)
    }


def find_value(hour: int, at: int) -> float | None:
    """One of the values; nothing of an hour with too few attempts, or none."""
    values = list_known().get(hour)
    if at == 0:
        return values[0] if values else 0
    return values[at] if values and values[0] >= RULES.season_least else None


def unusual(first: int) -> set[tuple[str, int]]:
    found, rows = set(), list_known()
    for hour in range(first, BEGIN + DAYS * DAY, HOUR):
        reach = [hour - n * DAY for n in range(RULES.season_days, 0, -1)]
        since = min((each for each in rows if reach[0] <= each < hour), default=hour)
        for at, kind in enumerate(SERIES):
            earlier = [find_value(each, at) for each in reach if each >= since]
            if judge(kind, find_value(hour, at), [each for each in earlier if each is not None]):
                found.add((kind, hour))
    return found


def judge(kind: str, now: float | None, earlier: list[float]) -> bool:
    _, both, least = SERIES[kind]
    if now is None or len(earlier) < RULES.season_least_days:
        return False
    usual = median(earlier)
    if both and max(now, usual) < RULES.season_least:
        return False
    apart = median(abs(each - usual) for each in earlier)
    spread = max(apart * MAD_TO_SIGMA, abs(usual) * SMALL_PART, least)
    return (abs(now - usual) if both else now - usual) > spread * RULES.season_spreads


@LONG
def test_hours_are_compared_with_the_same_hour_of_earlier_days(spark: SparkSession) -> None:
    rows = [
        (to_datetime(hour), 1, "letter", "default", "default", "mail", values[0], *values)
        for hour, values in list_known().items()
    ]
    metrics = spark.createDataFrame(rows, COLUMNS)
    first, end = BEGIN + 3 * DAY, BEGIN + DAYS * DAY
    hours = make_hours(metrics, first - RULES.season_days * DAY, end)
    found = find_seasonal(metrics, hours, RULES, first, end).collect()
    assert {(row.kind, seconds(row.hour)) for row in found} == unusual(first)
    assert {row.kind for row in found} == SERIES.keys() - {"unusual_run"}


def seconds(moment: datetime) -> int:
    return round(moment.timestamp())
