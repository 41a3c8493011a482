"""The penstock format: reads and writes a store from Spark, in batches or as a stream."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as compute
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidInput, InvalidState
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.ranges import (
    PAGE_SIZE,
    find_last_position,
    find_latest,
    get_position,
    make_ranges,
    read,
    read_feed,
    read_rows,
)
from penstock.pipeline.lake.schema import MOMENT, Table, to_spark_schema
from penstock.pipeline.spark.options import ReaderOptions, parse
from penstock.pipeline.spark.queue_claims import LEASED, make_batch_read_error, parse_queue_options
from penstock.pipeline.spark.queue_stream import QueueReader
from penstock.pipeline.spark.sink import SinkWriter, StreamWriter, make_sink_options
from penstock.pipeline.store_access import make_identity, use_store
from penstock.store import Store

SUPPORTED = (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    In,
    IsNull,
    IsNotNull,
)
COMPARISONS = {
    EqualTo: compute.equal,
    GreaterThan: compute.greater,
    GreaterThanOrEqual: compute.greater_equal,
    LessThan: compute.less,
    LessThanOrEqual: compute.less_equal,
}


def is_supported(each: Filter, schema: Any) -> bool:
    """Accepts only filters with the exact semantics of Spark, which does not apply them again."""
    name = get_column(each)
    if name is None:
        return False
    kind = schema.field(name).type
    return kind in (pa.int64(), pa.bool_(), pa.string(), MOMENT)


def get_column(each: Filter) -> str | None:
    if not isinstance(each, SUPPORTED) or len(each.attribute) != 1:
        return None
    return each.attribute[0]


def apply(filters: list[Filter], batch: Any) -> Any:
    for each in filters:
        batch = batch.filter(match_batch(each, batch))
    return batch


def match_batch(each: Filter, batch: Any) -> Any:
    """Nulls match only IsNull."""
    column = batch.column(get_column(each))
    match each:
        case IsNull():
            return compute.is_null(column)
        case IsNotNull():
            return compute.is_valid(column)
        case In(_, values):
            wanted = pa.array([value for value in values if value is not None], column.type)
            return compute.is_in(column, value_set=wanted)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return COMPARISONS[type(each)](column, pa.scalar(each.value, column.type))
    raise InvalidInput(f"unsupported filter: {each}")


# Spark stores it as JSON.
Offset: TypeAlias = dict[str, Any]


async def make_first_offset(store: Store) -> Offset:
    return {"store": await make_identity(store), "position": 0}


async def make_last_offset(store: Store, table: Table) -> Offset:
    return {
        "store": await make_identity(store),
        "position": await find_last_position(store, table, 0),
    }


async def make_next_offset(
    store: Store, table: Table, start: Offset, rows: int | None, target: Offset | None
) -> Offset:
    """Returns the end of the next micro-batch, at most `target`, or the start if nothing is new."""
    await refuse_foreign(store, table, start)
    begin = start["position"]
    if rows is None:
        end = await find_last_position(store, table, begin)
    else:
        end = await skip_rows(store, table, begin, rows)
    if target is not None:
        end = max(begin, min(end, target["position"]))
    return start | {"position": end}


async def refuse_foreign(store: Store, table: Table, start: Offset) -> None:
    if start["store"] != await make_identity(store):
        raise InvalidState(
            "the checkpoint belongs to another store; start the stream with a new checkpoint"
        )
    if not await has_reached(store, table, start["position"]):
        raise InvalidState(
            f"the checkpoint is at position {start['position']} of {table}, which the store has not"
            " reached; if it was restored from a backup, start the stream with a new checkpoint"
        )


async def has_reached(store: Store, table: Table, place: int) -> bool:
    """Looks for the row at the position, or for a later one if retention removed it."""
    there = await read_feed(store, table, place - 1, 1, place) if place else None
    if there is None or read_rows(there, table):
        return True
    return await find_last_position(store, table, 0) >= place


async def skip_rows(store: Store, table: Table, begin: int, rows: int) -> int:
    """Returns the position after `rows` rows. Rows that share a position stay together."""
    left = rows
    while left > 0:
        feed = await read_feed(store, table, begin, min(left, PAGE_SIZE))
        found = read_rows(feed, table)
        if not found:
            return begin
        begin, left = get_position(feed.cursor, table), left - len(found)
    return begin


def make_cursor(offset: Offset, table: Table) -> Cursor:
    at: int = offset["position"]
    return Cursor(message=at) if table == "message" else Cursor(history=at)


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        schema = LEASED if "queue" in self.options else parse(self.options).schema
        made: StructType = to_spark_schema(schema)
        return made

    def reader(self, schema: StructType) -> "StoreReader":
        if "queue" in self.options:
            raise make_batch_read_error()
        options = parse(self.options)
        return FilteringReader(options) if options.push_filters else StoreReader(options)

    def streamReader(self, schema: StructType) -> "StreamReader | QueueReader":  # noqa: N802
        if "queue" in self.options:
            return QueueReader(parse_queue_options(self.options))
        return StreamReader(parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:
        return SinkWriter(make_sink_options(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(make_sink_options(self.options, schema, overwrite))


class StoreReader(DataSourceReader):
    """Reads all rows that are final when the query is planned."""

    def __init__(self, options: ReaderOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        until = self.options.until
        if until is not None:
            return plan_partitions(self.options, Cursor(), Cursor(message=until, history=until))
        end = use_store(self.options.url, lambda store: find_latest(store, Cursor()))
        return plan_partitions(self.options, Cursor(), end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self.options.url, partition.value, self.options.schema)


class FilteringReader(StoreReader):
    """Applies pushed-down filters. Use one DataFrame per query: Spark 4.3 reuses the filters of
    the first query for all others and does not apply them itself."""

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        schema = self.options.schema
        self.filters = [each for each in filters if is_supported(each, schema)]
        return [each for each in filters if not is_supported(each, schema)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            yield apply(self.filters, batch)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReaderOptions) -> None:
        self.options = options
        self.target: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return use_store(self.options.url, make_first_offset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.reportLatestOffset()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        table = self.options.table
        return use_store(self.options.url, lambda store: make_last_offset(store, table))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        table, target = self.options.table, self.target
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return use_store(
            self.options.url, lambda store: make_next_offset(store, table, start, rows, target)
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        table = self.options.table
        begin, last = make_cursor(start, table), make_cursor(end, table)
        return plan_partitions(self.options, begin, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self.options.url, partition.value, self.options.schema)


def plan_partitions(options: ReaderOptions, after: Cursor, last: Cursor) -> list[InputPartition]:
    parts = use_store(
        options.url, lambda store: make_ranges(store, options.table, after, last, options.rows)
    )
    return [InputPartition(part) for part in parts]
