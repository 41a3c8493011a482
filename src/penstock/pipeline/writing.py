"""What a task of Spark does for the lake: it reads a stretch and writes one file."""

import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as parquet
from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.pipeline.lake import sync
from penstock.pipeline.manifest import Part
from penstock.pipeline.ranges import Range, read
from penstock.pipeline.schema import SCHEMAS, VERSION, VERSION_KEY, Table
from penstock.pipeline.tasks import spread

# Of one row group, which is what a task holds in memory.
GROUP_ROWS, GROUP_BYTES = 100_000, 32_000_000


class Task(Protocol):
    table: Table

    def read(self) -> Iterator[Any]:
        """Arrow batches."""


class Extraction(Struct, frozen=True):
    """A stretch of a store's feed."""

    url: str
    part: Range

    @property
    def table(self) -> Table:
        return self.part.table

    def read(self) -> Iterator[Any]:
        return read(self.url, self.part, SCHEMAS[self.table])


class Merger(Struct, frozen=True):
    """Files that become one."""

    table: Table
    paths: tuple[str, ...]

    def read(self) -> Iterator[Any]:
        schema = SCHEMAS[self.table]
        for path in self.paths:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=GROUP_ROWS // 10):
                    yield widened(batch, schema)


def widened(batch: Any, schema: Any) -> Any:
    """A column that an older file does not have is empty."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def run(spark: SparkSession, root: Path, batch: int, tasks: Sequence[Any]) -> tuple[Part, ...]:
    """Each task in one of Spark's. What a repeated task wrote first is named by nobody."""
    if not tasks:
        return ()
    written = spread(spark, partial(write, root, batch), list(enumerate(tasks)))
    parts = [part for part in written if part is not None]
    for folder in {(root / part.path).parent for part in parts}:
        sync(folder)
        sync(folder.parent)
    sync(root)
    return tuple(sorted(parts, key=lambda part: part.path))


def write(root: Path, batch: int, numbered: tuple[int, Task]) -> Part | None:
    number, task = numbered
    name = f"{task.table}/batch={batch:010}/part-{number:05}-{uuid.uuid4().hex[:8]}.parquet"
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = fill(path, task)
    if not rows:
        path.unlink()
        return None
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Part(task.table, name, rows, path.stat().st_size, digest)


def fill(path: Path, task: Task) -> int:
    schema = SCHEMAS[task.table].with_metadata({VERSION_KEY: str(VERSION).encode()})
    rows = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in groups(task.read()):
            writer.write_table(
                pa.Table.from_batches(group).replace_schema_metadata(schema.metadata)
            )
            rows += sum(batch.num_rows for batch in group)
    return rows


def groups(batches: Iterator[Any]) -> Iterator[list[Any]]:
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        rows, size = sum(each.num_rows for each in held), sum(each.nbytes for each in held)
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield held
            held = []
    if held:
        yield held
