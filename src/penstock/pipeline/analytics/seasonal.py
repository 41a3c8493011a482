"""Finds seasonal anomalies: hours that differ from the same hour of earlier days."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.model.anomalies import AnomalyThresholds
from penstock.pipeline.analytics.time import NAMES, name_columns
from penstock.pipeline.periods import DAY, HOUR, to_datetime

# The metric, whether less than usual counts too, and the minimum spread.
SERIES = {
    "unusual_throughput": ("completed", True, 5.0),
    "unusual_failures": ("failure_rate", False, 0.02),
    "unusual_wait": ("wait_p95", False, 0.25),
    "unusual_run": ("run_p95", False, 0.05),
}
# The median absolute deviation of a normal distribution times this is its standard deviation.
MAD_TO_SIGMA = 1.4826
SMALL_PART = 0.05


def find_seasonal(
    metrics: DataFrame, hours: DataFrame, rules: AnomalyThresholds, first: int, end: int
) -> DataFrame:
    """Finds anomalies from `first` up to `end`. `metrics` and `hours` start earlier.

    An hour without work has a throughput of 0, from the first hour with work on.
    """
    alike = {hour % DAY for hour in range(first, end, HOUR)}
    rows = fill_hours(
        metrics, hours.filter(get_hour_of_day("unix_seconds(hour)").isin(alike)), rules
    )
    judged = add_earlier_values(rows, rules).filter(
        (f.col("hour") >= f.lit(to_datetime(first))) & (f.col("hour") < f.lit(to_datetime(end)))
    )
    used = is_in_use(judged, metrics, rules)
    return used.select("hour", "queue_id", "type", *NAMES, make_verdicts(rules)).filter(
        "kind is not null"
    )


def get_hour_of_day(second: str) -> Column:
    return f.pmod(f.expr(second), f.lit(DAY))


def fill_hours(metrics: DataFrame, hours: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Adds missing hours for every queue and type.

    Drops rates and times of hours with too few attempts.
    """
    series = metrics.groupBy("queue_id", "type").agg(*name_columns())
    enough = f.col("attempts") >= rules.season_least
    columns = [
        f.col(name) if both else f.when(enough, f.col(name)).alias(name)
        for name, both, _ in SERIES.values()
    ]
    known = metrics.select("hour", "queue_id", "type", *columns)
    rows = series.crossJoin(hours).join(known, ["hour", "queue_id", "type"], "left")
    return rows.fillna(0, ["completed"]).withColumn("second", f.unix_seconds("hour"))


def add_earlier_values(rows: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Adds the values of the same hour on earlier days."""
    same_hour = Window.partitionBy("queue_id", "type", get_hour_of_day("second"))
    days = same_hour.orderBy("second").rowsBetween(-rules.season_days, -1)
    lists = {}
    for name, _, _ in SERIES.values():
        value = f.col(name).cast("double").alias("value")
        known = f.when(f.col(name).isNotNull(), f.struct("second", value))
        lists[f"{name}_earlier"] = f.collect_list(known).over(days)
    return rows.withColumns(lists)


def is_in_use(rows: DataFrame, metrics: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Keeps only values since the first use of the queue in the season."""
    used = metrics.groupBy("queue_id", "type").agg(
        f.collect_list(f.unix_seconds("hour")).alias("used")
    )
    begin = f.col("second") - rules.season_days * DAY
    near = f.filter("used", lambda each: (each >= begin) & (each < f.col("second")))
    rows = rows.join(used, ["queue_id", "type"]).withColumn("since", f.array_min(near))
    name_columns = [f"{name}_earlier" for name, _, _ in SERIES.values()]
    return rows.withColumns({name: filter_values(name) for name in name_columns})


def filter_values(name: str) -> Column:
    known = f.filter(name, lambda each: each.second >= f.col("since"))
    return f.transform(known, lambda each: each.value)


def make_verdicts(rules: AnomalyThresholds) -> Column:
    each = [
        make_verdict(kind, *given, rules) for kind, given in SERIES.items() if kind not in rules.off
    ]
    nothing = f.struct(
        f.lit(None).cast("string").alias("kind"),
        f.lit(None).cast("double").alias("value"),
        f.lit(None).cast("double").alias("threshold"),
        f.lit(None).cast("long").alias("count"),
    )
    return f.inline(f.array(nothing, *each))


def make_verdict(
    kind: str, name: str, both: bool, least: float, rules: AnomalyThresholds
) -> Column:
    """`threshold` is the usual value."""
    value, earlier = f.col(name).cast("double"), f.col(f"{name}_earlier")
    middle = compute_median(earlier)
    apart = compute_median(f.transform(earlier, lambda one: f.abs(one - middle)))
    spread = f.greatest(apart * MAD_TO_SIGMA, f.abs(middle) * SMALL_PART, f.lit(least))
    beyond = (f.abs(value - middle) if both else value - middle) > spread * rules.season_spreads
    enough = f.size(earlier) >= rules.season_least_days
    if both:
        enough &= f.greatest(value, middle) >= rules.season_least
    return f.struct(
        f.when(enough & beyond, f.lit(kind)).alias("kind"),
        value.alias("value"),
        middle.alias("threshold"),
        f.lit(1).cast("long").alias("count"),
    )


def compute_median(values: Column) -> Column:
    ordered = f.sort_array(values)
    size = f.size(values)
    low = f.get(ordered, ((size - 1) / 2).cast("int"))
    high = f.get(ordered, (size / 2).cast("int"))
    return f.when(size > 0, (low + high) / 2.0)


def make_hours(metrics: DataFrame, first: int, end: int) -> DataFrame:
    """Lists all hours, including those without activity."""
    spark = metrics.sparkSession
    numbers = spark.range(first, end, HOUR).select(f.timestamp_seconds("id").alias("hour"))
    return f.broadcast(numbers)
