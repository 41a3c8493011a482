"""Works a queue off, and is killed with its JVM when a batch is written and not yet completed.

python -m tests.pipeline.streaming URL FOLDER BATCH
"""

import os
import signal
import sys

from pyspark.sql import DataFrame

from penstock.pipeline import complete_after, start_session


def main(url: str, folder: str, fatal: str) -> None:
    def write(rows: DataFrame, batch: int) -> None:
        rows.select("id").write.mode("overwrite").parquet(f"{folder}/out/batch={batch}")
        if batch == int(fatal):
            os.killpg(0, signal.SIGKILL)

    with start_session("local[2]") as spark:
        rows = spark.readStream.format("penstock").options(url=url, queue="mail")
        query = (
            rows.option("maxRowsPerTrigger", "10")
            .load()
            .writeStream.foreachBatch(complete_after(url, write))
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
