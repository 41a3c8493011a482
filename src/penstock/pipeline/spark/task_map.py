"""Runs a function in many Spark tasks."""

import base64
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_tasks(
    spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Returns the result for each item. Spark may run a task more than once."""
    if not items:
        return []
    # Spark Connect cannot run a function, but it can read a data source.
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return read(spark, work, items)
    done: list[Result] = spark.sparkContext.parallelize(items, len(items)).map(work).collect()
    return done


def read(
    spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    spark.dataSource.register(TaskSource)
    tasks = base64.b64encode(pickle.dumps((work, list(items)))).decode()
    rows = spark.read.format(TaskSource.name()).option("tasks", tasks).load().collect()
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]


class TaskSource(DataSource):
    """Runs one task per partition."""

    @classmethod
    def name(cls) -> str:
        return "penstock_task"

    def schema(self) -> str:
        return "number long, result binary"

    def reader(self, schema: Any) -> "TaskReader":
        return TaskReader(self.options["tasks"])


class TaskReader(DataSourceReader):
    def __init__(self, tasks: str) -> None:
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        work, items = pickle.loads(base64.b64decode(self.tasks))
        return [InputPartition((number, work, item)) for number, item in enumerate(items)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        number, work, item = partition.value
        yield number, pickle.dumps(work(item))
