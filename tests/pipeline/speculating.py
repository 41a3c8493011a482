"""Writes rows by a Spark that starts slow tasks twice, and both publish at the same time.

python -m tests.pipeline.speculating MASTER URL FOLDER
"""

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

from pyspark import TaskContext
from pyspark.sql import functions as f

from penstock.pipeline import start_session

ROWS = 600
# In the second of two tasks, with hundreds before it.
SLOW = 550
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


def straggle(meeting: str) -> Callable[[str], str]:
    """The first to come to the slow row waits for the second one."""

    def look(key: str) -> str:
        context = TaskContext.get()
        if int(key) == SLOW and context is not None:
            if context.attemptNumber() > 0:
                Path(meeting).touch()
            for _ in range(3_600):
                if Path(meeting).exists():
                    break
                Event().wait(0.05)
        return key

    return look


def main(master: str, url: str, folder: str) -> None:
    with start_session(master, SETTINGS) as spark:
        slow = f.udf(straggle(f"{folder}/met"), "string", useArrow=False)
        rows = spark.range(ROWS, numPartitions=2).selectExpr("cast(id as string) as key")
        rows.select(slow("key").alias("key"), f.col("key").alias("body")).write.format(
            "penstock"
        ).options(url=url, queue="mail", name="twice").mode("append").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
