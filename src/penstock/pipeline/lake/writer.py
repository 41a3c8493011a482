"""Spark tasks of the lake: each reads a range or merges files, and writes one file."""

import base64
import hashlib
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.pipeline.extraction.ranges import Range, read
from penstock.pipeline.lake.files import open_files
from penstock.pipeline.lake.manifest import LakePart
from penstock.pipeline.lake.schema import SCHEMAS, VERSION, VERSION_KEY, Table, widen_batch

# Size of a row group, which a task holds in memory.
GROUP_ROWS, GROUP_BYTES = 100_000, 32_000_000


class LakeTask(Protocol):
    table: Table

    def read(self) -> Iterator[Any]:
        """Yields Arrow batches."""


class Extraction(Struct, frozen=True):
    """Reads a range of a store's feed."""

    url: str
    part: Range

    @property
    def table(self) -> Table:
        return self.part.table

    def read(self) -> Iterator[Any]:
        return read(self.url, self.part, SCHEMAS[self.table])


class Merger(Struct, frozen=True):
    """Reads lake files to merge them into one."""

    lake: str
    table: Table
    names: tuple[str, ...]

    def read(self) -> Iterator[Any]:
        schema, files = SCHEMAS[self.table], open_files(self.lake)
        for name in self.names:
            with files.parquet(name) as file:
                for batch in file.iter_batches(batch_size=GROUP_ROWS // 10):
                    yield widen_batch(batch, schema)


def run(spark: SparkSession, lake: str, batch: str, tasks: Sequence[Any]) -> tuple[LakePart, ...]:
    """Runs each task as a Spark task. Files of a repeated task's first try stay unlisted."""
    written = map_tasks(spark, partial(write, lake, batch), list(enumerate(tasks)))
    parts = [part for part in written if part is not None]
    return tuple(sorted(parts, key=lambda part: part.path))


def write(lake: str, batch: str, numbered: tuple[int, LakeTask]) -> LakePart | None:
    number, task = numbered
    name = f"{task.table}/batch={batch}/part-{number:05}-{uuid.uuid4().hex[:8]}.parquet"
    with open_files(lake).new(name) as path:
        rows = fill(path, task)
        if not rows:
            path.unlink()
            return None
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return LakePart(task.table, name, rows, path.stat().st_size, digest)


def fill(path: Path, task: LakeTask) -> int:
    schema = SCHEMAS[task.table].with_metadata({VERSION_KEY: str(VERSION).encode()})
    rows = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in group_batches(task.read()):
            writer.write_table(
                pa.Table.from_batches(group).replace_schema_metadata(schema.metadata)
            )
            rows += sum(batch.num_rows for batch in group)
    return rows


def group_batches(batches: Iterator[Any]) -> Iterator[list[Any]]:
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        rows, size = sum(each.num_rows for each in held), sum(each.nbytes for each in held)
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield held
            held = []
    if held:
        yield held


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
        return run_in_tasks(spark, work, items)
    done: list[Result] = spark.sparkContext.parallelize(items, len(items)).map(work).collect()
    return done


def run_in_tasks(
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
