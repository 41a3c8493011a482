"""A Spark source and sink for Parquet files in a bucket, without Hadoop's S3 client."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.pipeline.lake.files import LakeFiles, open_files
from penstock.pipeline.lake.schema import to_arrow_schema, widen_batch
from penstock.pipeline.lake.writer import GROUP_ROWS

# Rows per Arrow batch.
BATCH_ROWS = 10_000


def register_format(spark: SparkSession) -> str:
    """Registers the format with the session and returns its name."""
    spark.dataSource.register(BucketSource)
    # Makes the session active in this thread, where Spark looks for the sink.
    spark.createDataFrame([], "nothing int")
    return BucketSource.name()


class BucketSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_bucket"

    def reader(self, schema: StructType) -> "S3Reader":
        names = msgspec.json.decode(self.options["names"], type=list[str])
        return S3Reader(self.options["lake"], names, to_arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "S3Writer":
        return S3Writer(self.options["lake"], self.options["folder"], self.options["report"])


class S3Reader(DataSourceReader):
    """Does not accept filters: Spark 4.3 reuses those of one query for others on the same rows."""

    def __init__(self, lake: str, names: Sequence[str], schema: Any) -> None:
        self.lake = lake
        self.names = names
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(name) for name in self.names]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with open_files(self.lake).parquet(partition.value) as file:
            columns = [name for name in self.schema.names if name in file.schema_arrow.names]
            # One row group at a time, because read-ahead data is kept until all of it is consumed.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                    yield widen_batch(batch, self.schema)


class S3Receipt(WriterCommitMessage):
    """The files of one task, with their row counts."""

    def __init__(self, saved: list[tuple[str, int]]) -> None:
        self.saved = saved


class S3Writer(DataSourceArrowWriter):
    def __init__(self, lake: str, folder: str, report: str) -> None:
        self.lake = lake
        self.folder = folder
        self.report = report

    def write(self, iterator: Iterator[Any]) -> S3Receipt:
        with ExitStack() as stack:
            parts = DayPartWriter(open_files(self.lake), self.folder, stack)
            for batch in iterator:
                parts.add(batch)
        return S3Receipt([(name, part.rows) for name, part in parts.begun.values()])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        saved = [each for one in messages if isinstance(one, S3Receipt) for each in one.saved]
        open_files(self.lake).write_once(self.report, msgspec.json.encode(saved))


class DayPartWriter:
    """Writes one file per day, or a single one for rows without a day."""

    def __init__(self, files: LakeFiles, folder: str, stack: ExitStack) -> None:
        self.files = files
        self.folder = folder
        self.stack = stack
        self.begun: dict[str, tuple[str, ParquetPartWriter]] = {}

    def add(self, batch: Any) -> None:
        for folder, rows in divide_batch(batch, self.folder):
            if folder not in self.begun:
                self.begun[folder] = self.begin(folder, rows.schema)
            self.begun[folder][1].add(rows)

    def begin(self, folder: str, schema: Any) -> "tuple[str, ParquetPartWriter]":
        name = f"{folder}/part-{uuid.uuid4().hex}.parquet"
        path = self.stack.enter_context(self.files.new(name))
        return name, self.stack.enter_context(closing(ParquetPartWriter(path, schema)))


class ParquetPartWriter:
    """Writes a Parquet file in large row groups."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.writer = parquet.ParquetWriter(path, schema, compression="zstd")
        self.held: list[Any] = []
        self.rows = 0

    def add(self, batch: Any) -> None:
        self.held.append(batch)
        self.rows += batch.num_rows
        if sum(each.num_rows for each in self.held) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self.held:
            self.writer.write_table(pa.Table.from_batches(self.held))
            self.held = []

    def close(self) -> None:
        self.flush()
        self.writer.close()


def divide_batch(batch: Any, folder: str) -> Iterator[tuple[str, Any]]:
    """Splits rows by day. The day is in the folder name, not in the file."""
    if "day" not in batch.schema.names:
        yield folder, batch
        return
    days, rest = batch.column("day"), batch.drop_columns(["day"])
    for day in compute.unique(days).to_pylist():
        yield f"{folder}/day={day}", rest.filter(compute.equal(days, day))
