"""The penstock format: reads and writes a store from Spark, in batches or as a stream."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.ranges import find_latest, make_ranges, read
from penstock.pipeline.lake.schema import to_spark_schema
from penstock.pipeline.spark import offsets
from penstock.pipeline.spark.filters import apply, is_supported
from penstock.pipeline.spark.options import ReaderOptions, parse
from penstock.pipeline.spark.queue_claims import LEASED, make_batch_read_error, parse_queue_options
from penstock.pipeline.spark.queue_stream import QueueReader
from penstock.pipeline.spark.sink import SinkWriter, StreamWriter, make_sink_options
from penstock.pipeline.store_access import use_store


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
        self.target: offsets.Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return use_store(self.options.url, offsets.make_first_offset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.reportLatestOffset()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        table = self.options.table
        return use_store(self.options.url, lambda store: offsets.make_last_offset(store, table))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        table, target = self.options.table, self.target
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return use_store(
            self.options.url,
            lambda store: offsets.make_next_offset(store, table, start, rows, target),
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        table = self.options.table
        begin, last = offsets.make_cursor(start, table), offsets.make_cursor(end, table)
        return plan_partitions(self.options, begin, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self.options.url, partition.value, self.options.schema)


def plan_partitions(options: ReaderOptions, after: Cursor, last: Cursor) -> list[InputPartition]:
    parts = use_store(
        options.url, lambda store: make_ranges(store, options.table, after, last, options.rows)
    )
    return [InputPartition(part) for part in parts]
