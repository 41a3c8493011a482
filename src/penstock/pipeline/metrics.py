"""Transform: what each queue and type did in an hour, with histograms that can be added up."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.attempts import failed, worked
from penstock.pipeline.frames import HOUR, NAMES, floor, names
from penstock.pipeline.histogram import bucket, gathered, merged, percentiles

KEYS = ["hour", "queue_id", "type"]
WAITING = ("ready", "scheduled")
COUNTS = (
    "published", "attempts", "completed", "failures", "retried", "lost", "failed", "dead",
    "expired", "cancelled", "redriven", "handed_back", "flash",
)  # fmt: skip
HISTOGRAMS = ("wait_histogram", "run_histogram")
SUMS = ("wait_sum", "run_sum")
GREATEST = ("wait_max", "run_max")


def metrics(attempts: DataFrame, messages: DataFrame, flash_under: float) -> DataFrame:
    """Of the hours in which the attempts ended and the messages were published."""
    rows = attempts.withColumn("hour", floor("at", HOUR))
    arrived = messages.select(floor("created_at", HOUR).alias("hour"), "queue_id", "type", *NAMES)
    counted = arrived.groupBy(*KEYS).agg(*names(), f.count("*").alias("published"))
    both = counted.unionByName(tallied(rows, flash_under), allowMissingColumns=True)
    totals = both.groupBy(*KEYS).agg(*names(), *added())
    times = rows.filter(worked())
    for name in HISTOGRAMS:
        totals = totals.join(histogram(times, name), KEYS, "left")
    return finished(totals)


def tallied(rows: DataFrame, flash_under: float) -> DataFrame:
    verb, state = f.col("verb"), f.col("state")
    done, returned = worked(), state.isin(*WAITING)
    conditions = {
        "attempts": done,
        "completed": done & (state == "completed"),
        "failures": done & failed(),
        "retried": done & failed() & returned,
        "lost": verb == "reclaim",
        "failed": state == "failed",
        "dead": (state == "dead") & ~f.col("rested").eqNullSafe("dead"),
        "expired": state == "expired",
        "cancelled": state == "cancelled",
        "redriven": (verb == "redrive") & returned,
        "handed_back": verb.isin("release", "park"),
        "flash": done & (state == "completed") & (f.col("run") < flash_under),
    }
    counts = [f.count_if(each).alias(name) for name, each in conditions.items()]
    return rows.groupBy(*KEYS).agg(*names(), *counts, *times_of(done))


def times_of(done: Column) -> list[Column]:
    wait, run = f.when(done, f.col("wait")), f.when(done, f.col("run"))
    return [
        total(wait).alias("wait_sum"),
        total(run).alias("run_sum"),
        f.max(wait).alias("wait_max"),
        f.max(run).alias("run_max"),
    ]


def total(seconds: Column) -> Column:
    """In whole microseconds, whose sum does not depend on their order."""
    return f.sum(f.round(seconds * 1_000_000).cast("long")) / f.lit(1_000_000.0)


def added() -> list[Column]:
    return [
        *(f.coalesce(f.sum(name), f.lit(0)).cast("long").alias(name) for name in COUNTS),
        *(f.sum(name).alias(name) for name in SUMS),
        *(f.max(name).alias(name) for name in GREATEST),
    ]


def histogram(rows: DataFrame, name: str) -> DataFrame:
    column = name.removesuffix("_histogram")
    counted = rows.select(*KEYS, bucket(f.col(column)).alias("bucket"), f.lit(1).alias("count"))
    return gathered(counted.filter("bucket is not null"), KEYS, name)


def finished(totals: DataFrame) -> DataFrame:
    """With what follows from the sums."""
    rates = {
        "failure_rate": f.try_divide("failures", "attempts"),
        "retry_rate": f.try_divide("retried", "attempts"),
    }
    quantiles = [each for name in HISTOGRAMS for each in percentiles(name)]
    known = [name for name in totals.columns if name not in HISTOGRAMS]
    return totals.select(
        *known, *(rate.alias(name) for name, rate in rates.items()), *quantiles, *HISTOGRAMS
    )


def summed(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Metrics of several hours or types as one: counts are added, histograms too."""
    totals = rows.groupBy(*keys).agg(
        *(each for each, name in zip(names(), NAMES, strict=True) if name not in keys), *added()
    )
    for name in HISTOGRAMS:
        totals = totals.join(merged(rows, keys, name), keys, "left")
    return finished(totals)
