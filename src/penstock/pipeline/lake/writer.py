"""Spark tasks of the lake: each reads a range or merges files, and writes one file."""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as parquet
from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.pipeline.extraction.ranges import Range, read
from penstock.pipeline.lake.files import open_files
from penstock.pipeline.lake.manifest import LakePart
from penstock.pipeline.lake.schema import SCHEMAS, VERSION, VERSION_KEY, Table, widen_batch
from penstock.pipeline.spark.task_map import map_tasks

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
