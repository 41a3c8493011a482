"""Computes hourly metrics per queue and type, with histograms that can be added up."""

import math
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.analytics.attempts import is_failed, is_worked
from penstock.pipeline.analytics.time import NAMES, floor_time, name_columns
from penstock.pipeline.periods import HOUR
from penstock.rules.histograms import BOUNDS, FIRST_BUCKET, GROWTH, LAST_BUCKET, PERCENTILES

KEYS = ["hour", "queue_id", "type"]
WAITING = ("ready", "scheduled")
COUNTS = (
    "published", "attempts", "completed", "failures", "retried", "lost", "failed", "dead",
    "expired", "cancelled", "redriven", "handed_back", "flash",
)  # fmt: skip
HISTOGRAMS = ("wait_histogram", "run_histogram")
SUMS = ("wait_sum", "run_sum")
GREATEST = ("wait_max", "run_max")


def make_metrics(attempts: DataFrame, messages: DataFrame, flash_under: float) -> DataFrame:
    """Computes the metrics of the hours in which attempts ended and messages were published."""
    rows = attempts.withColumn("hour", floor_time("at", HOUR))
    arrived = messages.select(
        floor_time("created_at", HOUR).alias("hour"), "queue_id", "type", *NAMES
    )
    counted = arrived.groupBy(*KEYS, *NAMES).agg(f.count("*").alias("published"))
    both = counted.unionByName(count_attempts(rows, flash_under), allowMissingColumns=True)
    totals = both.groupBy(*KEYS).agg(*name_columns(), *add_histograms())
    return finish_metrics(totals.join(make_histograms(rows.filter(is_worked())), KEYS, "left"))


def count_attempts(rows: DataFrame, flash_under: float) -> DataFrame:
    verb, state = f.col("verb"), f.col("state")
    done, returned = is_worked(), state.isin(*WAITING)
    conditions = {
        "attempts": done,
        "completed": done & (state == "completed"),
        "failures": done & is_failed(),
        "retried": done & is_failed() & returned,
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
    return rows.groupBy(*KEYS, *NAMES).agg(*counts, *select_times(done))


def select_times(done: Column) -> list[Column]:
    wait, run = f.when(done, f.col("wait")), f.when(done, f.col("run"))
    return [
        to_micros(wait).alias("wait_sum"),
        to_micros(run).alias("run_sum"),
        f.max(wait).alias("wait_max"),
        f.max(run).alias("run_max"),
    ]


def to_micros(seconds: Column) -> Column:
    """Sums in integer microseconds, so that the order does not matter."""
    return f.sum(f.round(seconds * 1_000_000).cast("long"))


def sum_column(name: str) -> Column:
    """Sums microseconds and returns seconds."""
    return (f.sum(name) / f.lit(1_000_000.0)).alias(name)


def add_histograms() -> list[Column]:
    return [
        *(f.coalesce(f.sum(name), f.lit(0)).cast("long").alias(name) for name in COUNTS),
        *map(sum_column, SUMS),
        *(f.max(name).alias(name) for name in GREATEST),
    ]


def make_histograms(rows: DataFrame) -> DataFrame:
    """Computes both histograms in one pass, with a single shuffle by key."""
    buckets = [find_bucket(f.col(name.removesuffix("_histogram"))) for name in HISTOGRAMS]
    together = rows.select(*KEYS, f.array(*buckets).alias("buckets")).repartition(*KEYS)
    each = together.select(*KEYS, f.posexplode_outer("buckets").alias("which", "bucket"))
    counts = each.filter("bucket is not null").groupBy(*KEYS, "which", "bucket")
    lists = [gather_buckets(f.col("which") == n).alias(name) for n, name in enumerate(HISTOGRAMS)]
    return counts.agg(f.count("*").alias("count")).groupBy(*KEYS).agg(*lists)


def finish_metrics(totals: DataFrame) -> DataFrame:
    """Adds rates and percentiles."""
    rates = {
        "failure_rate": f.try_divide("failures", "attempts"),
        "retry_rate": f.try_divide("retried", "attempts"),
    }
    quantiles = [each for name in HISTOGRAMS for each in compute_percentiles(name)]
    known = [name for name in totals.columns if name not in HISTOGRAMS]
    return totals.select(
        *known, *(rate.alias(name) for name, rate in rates.items()), *quantiles, *HISTOGRAMS
    )


CONSUMER_KEYS = ["hour", "consumer", "queue_id"]
CONSUMER_COUNTS = ("attempts", "completed", "failures", "lost")


def make_consumers(attempts: DataFrame) -> DataFrame:
    rows = attempts.filter(is_worked() & f.col("consumer").isNotNull())
    under_names = (
        rows.withColumn("hour", floor_time("at", HOUR))
        .groupBy(*CONSUMER_KEYS, *NAMES)
        .agg(
            f.count("*").alias("attempts"),
            f.count_if(f.col("state") == "completed").alias("completed"),
            f.count_if(is_failed()).alias("failures"),
            f.count_if(f.col("verb") == "reclaim").alias("lost"),
            to_micros(f.col("run")).alias("busy"),
            f.max("run").alias("run_max"),
            f.min("claimed_at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
    )
    return under_names.groupBy(*CONSUMER_KEYS).agg(
        *name_columns(),
        *(f.sum(name).alias(name) for name in CONSUMER_COUNTS),
        sum_column("busy"),
        f.max("run_max").alias("run_max"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
    )


def find_bucket(seconds: Column) -> Column:
    """Returns the bucket of a duration.

    The logarithm is off by one at most, where a duration is a bound, and the table corrects it.
    """
    micros = f.round(seconds * 1_000_000).cast("long")
    about = f.ceil(f.log(f.greatest(micros, f.lit(1)) / 1e6) / f.lit(math.log(GROWTH))).cast("int")
    near = f.greatest(f.lit(FIRST_BUCKET), f.least(f.lit(LAST_BUCKET - 1), about))
    bounds = f.expr(f"array({', '.join(f'{bound}L' for bound in BOUNDS)})")
    below = f.when(near > FIRST_BUCKET, bounds[near - FIRST_BUCKET - 1])
    return (
        f.when(micros > bounds[near - FIRST_BUCKET], near + 1)
        .when(micros <= below, near - 1)
        .otherwise(near)
    )


def compute_bucket_seconds(number: Column) -> Column:
    """Returns the middle of a bucket in seconds."""
    return f.pow(f.lit(GROWTH), number) * f.lit(2 / (1 + GROWTH))


def gather_buckets(ours: Column) -> Column:
    """Aggregates `bucket` and `count` of matching rows to a histogram; null if there are none."""
    each = f.collect_list(f.when(ours, f.struct("bucket", "count")))
    return f.when(f.size(each) > 0, f.array_sort(each))


def compute_percentiles(name: str) -> list[Column]:
    """Computes the percentiles of a histogram; null if it is null."""
    buckets = walk_buckets(name)
    return [
        compute_bucket_seconds(buckets[f"p{percent}"]).alias(
            f"{name.removesuffix('_histogram')}_p{percent}"
        )
        for percent in PERCENTILES
    ]


def walk_buckets(name: str) -> Column:
    """Finds the buckets of all percentiles in one pass, because each step is slow in Spark."""
    total = f"aggregate({name}, 0L, (sum, each) -> sum + each.count)"
    begin = make_fields(
        f"'n{percent}', ceil({total} * {percent} / 100.0D), 'p{percent}', cast(null as int)"
        for percent in PERCENTILES
    )
    step = make_fields(
        f"'n{percent}', walk.n{percent} - each.count,"
        f" 'p{percent}', if(walk.p{percent} is null and walk.n{percent} <= each.count,"
        f" each.bucket, walk.p{percent})"
        for percent in PERCENTILES
    )
    return f.expr(f"aggregate({name}, {begin}, (walk, each) -> {step})")


def make_fields(texts: Iterable[str]) -> str:
    return f"named_struct({', '.join(texts)})"
