"""Transform: what each consumer did in an hour."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.attempts import failed, worked
from penstock.pipeline.frames import HOUR, floor, names
from penstock.pipeline.metrics import total

KEYS = ["hour", "consumer", "queue_id"]


def consumers(attempts: DataFrame) -> DataFrame:
    rows = attempts.filter(worked() & f.col("consumer").isNotNull())
    return (
        rows.withColumn("hour", floor("at", HOUR))
        .groupBy(*KEYS)
        .agg(
            *names(),
            f.count("*").alias("attempts"),
            f.count_if(f.col("state") == "completed").alias("completed"),
            f.count_if(failed()).alias("failures"),
            f.count_if(f.col("verb") == "reclaim").alias("lost"),
            total(f.col("run")).alias("busy"),
            f.max("run").alias("run_max"),
            f.min("claimed_at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
    )
