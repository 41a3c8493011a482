"""Builds the attempts table: history rows with their message, wait time and run time."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.model.queue import Queue
from penstock.pipeline.analytics.fingerprints import make_fingerprint

# Verbs that end a delivery after work on it.
WORKED = ("complete", "fail", "nack", "reject", "reclaim", "cancel")
FAILED = ("fail", "nack", "reject", "reclaim")
MESSAGE_COLUMNS = (
    "type",
    "priority",
    "created_at",
    "run_at",
    "max_attempts",
    "lease",
    "correlation_id",
)
LIMITS = pa.schema(
    [
        ("queue_id", pa.int64()),
        ("limit", pa.int32()),
        ("counts_deliveries", pa.bool_()),
        ("queue_lease", pa.float64()),
    ]
)


def make_attempts(
    history: DataFrame, messages: DataFrame, rests: DataFrame, limits: DataFrame
) -> DataFrame:
    """`rests` is the history of all non-final rows, from the beginning."""
    size = f.octet_length("body").cast("long").alias("body_bytes")
    known = messages.select("id", *MESSAGE_COLUMNS, size)
    rows = history.withColumn("fingerprint", make_fingerprint(f.col("error")))
    # Hash joins avoid sorting. The caller sets the number of partitions so that one fits in memory.
    both = rows.join(known.hint("shuffle_hash"), "id", "left").join(
        collect_rests(rests).hint("shuffle_hash"), "id", "left"
    )
    return add_timings(both.join(f.broadcast(limits), "queue_id", "left"))


def collect_rests(rests: DataFrame) -> DataFrame:
    """Collects the earlier states of each message."""
    rest = f.struct(
        "position",
        f.coalesce("due_at", "at").alias("ready_at"),
        "state",
        "consumer",
        make_fingerprint(f.col("error")).alias("fingerprint"),
        f.col("verb").isin(*FAILED).alias("failed"),
    )
    return rests.groupBy("id").agg(f.collect_list(rest).alias("rests"))


BEFORE_TYPE = ("position", "id", "queue_id", "tenant", "scope", "queue")
AFTER_TYPE = (
    "priority", "created_at", "ready_at", "claimed_at", "at", "due_at", "verb", "state", "reason",
    "error", "fingerprint", "attempts", "deliveries", "consumer", "final", "correlation_id",
    "body_bytes",
)  # fmt: skip


def add_timings(rows: DataFrame) -> DataFrame:
    earlier = f.filter("rests", lambda rest: rest.position < f.col("position"))
    rows = rows.withColumn("earlier", earlier)
    rows = rows.withColumn("last", f.array_max("earlier"))
    # A requested delay is not wait time.
    ready_at = f.coalesce(f.col("last.ready_at"), "run_at", "created_at")
    like = f.filter(
        "earlier", lambda rest: rest.failed & (rest.fingerprint == f.col("fingerprint"))
    )
    rows = rows.withColumns({"ready_at": ready_at, "like": like})
    return rows.select(
        *BEFORE_TYPE,
        f.coalesce("type", f.lit("")).alias("type"),
        *AFTER_TYPE,
        f.coalesce("lease", "queue_lease").alias("lease"),
        compute_attempts_left().alias("attempts_left"),
        f.col("last.state").alias("rested"),
        compute_seconds_between("ready_at", "claimed_at").alias("wait"),
        compute_seconds_between("claimed_at", "at").alias("run"),
        *count_alike(),
    )


def compute_attempts_left() -> Column:
    used = f.when(f.col("counts_deliveries"), f.col("deliveries")).otherwise(f.col("attempts"))
    return (f.coalesce("max_attempts", "limit") - used).cast("int")


def compute_seconds_between(start: str, end: str) -> Column:
    """Returns 0 for negative differences, because clocks of several machines may differ.

    Null if a moment is null: greatest() alone ignores nulls and would return 0.
    """
    length = (f.unix_micros(end) - f.unix_micros(start)) / f.lit(1_000_000.0)
    return f.when(length.isNotNull(), f.greatest(length, f.lit(0.0)))


def count_alike() -> list[Column]:
    """Counts how often the message has failed like this, and on how many consumers."""
    failed = f.col("verb").isin(*FAILED) & f.col("fingerprint").isNotNull()
    others = f.transform("like", lambda rest: rest.consumer)
    hands = f.array_distinct(f.concat(f.coalesce(others, f.array()), f.array("consumer")))
    times = f.coalesce(f.size("like"), f.lit(0)) + 1
    return [
        f.when(failed, f.greatest(times, f.lit(1))).cast("int").alias("alike"),
        f.when(failed, f.size(hands)).cast("int").alias("alike_consumers"),
    ]


def make_limits(spark: SparkSession, queues: Iterable[Queue]) -> DataFrame:
    """Returns the current limits of the queues. Past limits are not recorded."""
    rows = [
        {
            "queue_id": queue.id,
            "limit": queue.settings.max_attempts,
            "counts_deliveries": queue.settings.retry.count == "deliveries",
            "queue_lease": queue.settings.lease,
        }
        for queue in queues
    ]
    # From a list, Spark would create rows in Python processes, which take seconds to start.
    return spark.createDataFrame(pa.Table.from_pylist(rows, LIMITS))


def is_worked() -> Column:
    return f.col("claimed_at").isNotNull() & f.col("verb").isin(*WORKED)


def is_failed() -> Column:
    return f.col("verb").isin(*FAILED)
