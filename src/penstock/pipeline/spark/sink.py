"""The Spark sink: publishes each row once, however often Spark runs a task."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidInput
from penstock.pipeline.lake.files import open_files
from penstock.pipeline.spark.drafts import check_schema, make_drafts
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
