"""The format penstock as a sink: rows become messages, each once, however often a task runs."""

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
from penstock.pipeline.drafts import drafts_of, refuse_odd
from penstock.pipeline.files import opened
from penstock.pipeline.publishing import Sent, publish_all, refuse_closed
from penstock.pipeline.stores import using
from penstock.pipeline.target import Target, parse_target


class Receipt(WriterCommitMessage):
    """What one task published."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent


def target_of(options: Any, schema: StructType, overwrite: bool) -> Target:
    target = parse_target(options)
    if overwrite:
        raise InvalidInput('a queue is not overwritten: write with mode("append")')
    refuse_odd(schema, target)
    if target.queue is not None:
        using(target.url, partial(refuse_closed, queues=[target.queue], scope=target.scope))
    return target


def write(target: Target, batches: Iterator[Any]) -> Receipt:
    return Receipt(publish_all(target, (drafts_of(batch, target) for batch in batches)))


class Writer(DataSourceArrowWriter):
    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[Any]) -> Receipt:
        return write(self.target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """By then all is published; whoever asked for a report gets it."""
        if self.target.report is not None:
            sent = sum((each.sent for each in messages if isinstance(each, Receipt)), Sent())
            place, _, name = self.target.report.rpartition("/")
            opened(place).write_once(name, msgspec.json.encode(sent))


class StreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch that is repeated has the same keys."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[Any]) -> Receipt:
        return write(self.target, iterator)
