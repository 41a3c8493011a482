"""The Spark sink: publishes each row once, however often Spark runs a task."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.errors import InvalidInput
from penstock.model.fields import FIELDS
from penstock.model.message import Dedup, Draft
from penstock.pipeline.lake.files import open_files
from penstock.pipeline.spark.sink_options import SinkOptions, parse_sink_options
from penstock.pipeline.spark.sink_publish import SinkResult, publish_all, refuse_closed
from penstock.pipeline.store_access import use_store


class SinkReceipt(WriterCommitMessage):
    """Counts what one task published."""

    def __init__(self, sent: SinkResult) -> None:
        self.sent = sent


def make_sink_options(options: Any, schema: StructType, overwrite: bool) -> SinkOptions:
    target = parse_sink_options(options)
    if overwrite:
        raise InvalidInput('a queue cannot be overwritten; use mode("append")')
    check_schema(schema, target)
    if target.queue is not None:
        use_store(target.url, partial(refuse_closed, queues=[target.queue], scope=target.scope))
    return target


def write(target: SinkOptions, batches: Iterator[Any]) -> SinkReceipt:
    return SinkReceipt(publish_all(target, (make_drafts(batch, target) for batch in batches)))


class SinkWriter(DataSourceArrowWriter):
    def __init__(self, target: SinkOptions) -> None:
        self.target = target

    def write(self, iterator: Iterator[Any]) -> SinkReceipt:
        return write(self.target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Writes the report, if one was asked for. All rows are published by now."""
        if self.target.report is not None:
            sent = sum(
                (each.sent for each in messages if isinstance(each, SinkReceipt)), SinkResult()
            )
            place, _, name = self.target.report.rpartition("/")
            open_files(place).write_once(name, msgspec.json.encode(sent))


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes micro-batches. A repeated one has the same keys."""

    def __init__(self, target: SinkOptions) -> None:
        self.target = target

    def write(self, iterator: Iterator[Any]) -> SinkReceipt:
        return write(self.target, iterator)


TEXT, WHOLE = (StringType,), (ByteType, ShortType, IntegerType, LongType)
NUMBER, MOMENT, PAIRS = (*WHOLE, FloatType, DoubleType), (TimestampType,), (MapType,)
# The Spark types that each column accepts.
COLUMN_KINDS = {"name": TEXT, "text": TEXT, "bytes": (StringType, BinaryType), "whole": WHOLE,
                "number": NUMBER, "moment": MOMENT, "texts": PAIRS}  # fmt: skip
# A row's key is its dedup key, so that each row is published once.
NO_COLUMNS = {"dedup", "name", "callback"}
COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {"key": TEXT} | {
    name: COLUMN_KINDS[field.kind] for name, field in FIELDS.items() if name not in NO_COLUMNS
}
TYPE_NAMES = {TEXT: "text", WHOLE: "a whole number", NUMBER: "a number", MOMENT: "a timestamp",
          PAIRS: "a map of texts", COLUMN_TYPES["body"]: "text or binary"}  # fmt: skip


def check_schema(schema: StructType, target: SinkOptions) -> None:
    """Checks the columns before any task starts."""
    for field in schema.fields:
        kinds = COLUMN_TYPES.get(field.name)
        if kinds is None:
            raise InvalidInput(
                f"unknown column {field.name!r}; allowed are {', '.join(COLUMN_TYPES)}"
            )
        if not isinstance(field.dataType, kinds):
            found = field.dataType.simpleString()
            raise InvalidInput(
                f"column {field.name!r} has type {found} and must be {TYPE_NAMES[kinds]}"
            )
    if "key" not in schema.names:
        raise InvalidInput(
            "the column key is missing; it identifies a row across retries, so that each message"
            " is published once"
        )
    if "queue" not in schema.names and target.queue is None:
        raise InvalidInput("no queue given; add a column queue or set the option queue")


def make_drafts(batch: Any, target: SinkOptions) -> Iterator[Draft]:
    """Nulls become the default of the field."""
    rows = pa.RecordBatch.from_arrays(
        [to_micros(column) for column in batch.columns], names=batch.schema.names
    )
    for row in rows.to_pylist():
        yield make_draft({name: value for name, value in row.items() if value is not None}, target)


def to_micros(column: Any) -> Any:
    """Converts timestamps to microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column


def make_draft(given: dict[str, Any], target: SinkOptions) -> Draft:
    key = given.pop("key", None)
    if not key:
        raise InvalidInput(
            "a row has no key; each row needs one, so that its message is published once"
        )
    body = given.pop("body", b"")
    for name in ("headers", "labels"):
        if name in given:
            given[name] = dict(given[name])
    queue = given.pop("queue", target.queue)
    if queue is None:
        raise InvalidInput(f"the row with key {key!r} has no queue")
    dedup = Dedup(f"{target.name}:{key}", window=None)
    whole = body.encode() if isinstance(body, str) else bytes(body)
    return Draft(queue=queue, body=whole, dedup=dedup, **given)
