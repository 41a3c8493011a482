"""Computes hourly metrics per consumer."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.analytics.attempts import is_failed, is_worked
from penstock.pipeline.analytics.metrics import sum_column, to_micros
from penstock.pipeline.analytics.time import NAMES, floor_time, name_columns
from penstock.pipeline.periods import HOUR

KEYS = ["hour", "consumer", "queue_id"]
COUNTS = ("attempts", "completed", "failures", "lost")


def make_consumers(attempts: DataFrame) -> DataFrame:
    rows = attempts.filter(is_worked() & f.col("consumer").isNotNull())
    under_names = (
        rows.withColumn("hour", floor_time("at", HOUR))
        .groupBy(*KEYS, *NAMES)
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
    return under_names.groupBy(*KEYS).agg(
        *name_columns(),
        *(f.sum(name).alias(name) for name in COUNTS),
        sum_column("busy"),
        f.max("run_max").alias("run_max"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
    )
