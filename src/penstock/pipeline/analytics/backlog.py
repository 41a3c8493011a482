"""Computes the backlog: unfinished and dead messages at the end of each minute."""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from penstock.pipeline.analytics.time import NAMES, floor_time, name_columns
from penstock.pipeline.periods import MINUTE

KEYS = ["minute", "queue_id"]
# `died` is the net change of dead letters.
CHANGES = ("arrived", "left", "died")
CARRIED = ("backlog", "dead")


def make_changes(attempts: DataFrame, messages: DataFrame) -> DataFrame:
    """Counts changes per minute, queue and queue name."""
    arrived = messages.select(
        floor_time("created_at", MINUTE).alias("minute"), "queue_id", *NAMES,
        f.lit(1).alias("arrived"), f.lit(0).alias("left"), f.lit(0).alias("died"),
    )  # fmt: skip
    return sum_changes(arrived.unionByName(count_moves(attempts)))


def count_moves(attempts: DataFrame) -> DataFrame:
    """A dead message has already left the backlog, and a redrive returns it."""
    was_dead, is_dead = f.col("rested").eqNullSafe("dead"), f.col("state") == "dead"
    final = f.col("final")
    rows = attempts.filter(final | is_dead | was_dead)
    return rows.select(
        floor_time("at", MINUTE).alias("minute"), "queue_id", *NAMES,
        (was_dead & ~is_dead & ~final).cast("int").alias("arrived"),
        (~was_dead & (final | is_dead)).cast("int").alias("left"),
        (is_dead.cast("int") - was_dead.cast("int")).alias("died"),
    )  # fmt: skip


def sum_changes(rows: DataFrame) -> DataFrame:
    sums = [f.sum(name).cast("long").alias(name) for name in CHANGES]
    return rows.groupBy(*KEYS, *NAMES).agg(*sums)


def make_backlog(changed: DataFrame, carried: DataFrame, days: DataFrame) -> DataFrame:
    """Adds up the changes, starting from the end of the day before.

    Each day starts with a row for every non-empty queue, so the next day needs only this one.
    """
    queues = changed.select("queue_id").union(carried.select("queue_id")).distinct()
    starts = days.crossJoin(f.broadcast(queues)).select(f.col("day_at").alias("minute"), "queue_id")
    rows = changed.unionByName(starts, allowMissingColumns=True)
    rows = rows.groupBy(*KEYS).agg(
        *name_columns(), *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in CHANGES)
    )
    line = Window.partitionBy("queue_id").orderBy("minute")
    base = carried.select(
        "queue_id", *(f.col(name).alias(f"{name}_0") for name in (*NAMES, *CARRIED))
    )
    named = [
        f.coalesce(f.last(name, ignorenulls=True).over(line), f.col(f"{name}_0")).alias(name)
        for name in NAMES
    ]
    summed = rows.join(f.broadcast(base), "queue_id", "left").select(
        *KEYS, *named, *CHANGES,
        sum_over(f.col("arrived") - f.col("left"), "backlog", line),
        sum_over(f.col("died"), "dead", line),
    )  # fmt: skip
    something = " or ".join(f"{name} <> 0" for name in (*CHANGES, *CARRIED))
    return summed.filter(something)


def sum_over(change: Column, name: str, line: WindowSpec) -> Column:
    return (f.coalesce(f.col(f"{name}_0"), f.lit(0)) + f.sum(change).over(line)).alias(name)


def keep_last(rows: DataFrame) -> DataFrame:
    """Returns the last values of a day, which the next day starts from."""
    return rows.groupBy("queue_id").agg(
        *(f.max_by(name, "minute").alias(name) for name in (*NAMES, *CARRIED))
    )
