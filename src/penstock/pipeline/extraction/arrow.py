"""Converts messages and history rows to Arrow batches."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from penstock.model.message import PLAIN, HistoryRow, Meta, StoredMessage
from penstock.model.queue import Queue

QUEUE_COLUMNS = {"tenant", "scope", "queue"}
META_COLUMNS = set(Meta.__struct_fields__)


def make_batch(
    rows: Sequence[StoredMessage] | Sequence[HistoryRow], schema: Any, queues: Mapping[int, Queue]
) -> Any:
    return make_arrow_batch(lambda name: list(map(attrgetter(name), rows)), schema, queues)


def make_arrow_batch(
    values: Callable[[str], list[Any]], schema: Any, queues: Mapping[int, Queue]
) -> Any:
    """Builds an Arrow batch. Deleted queues have an id and no name."""
    metas = values("meta") if META_COLUMNS.intersection(schema.names) else []
    plain = all(meta is PLAIN for meta in metas)
    columns = [
        make_repeated(field, len(metas))
        if plain and field.name in META_COLUMNS
        else pa.array(make_column(values, metas, field.name, queues), field.type, from_pandas=False)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def make_repeated(field: Any, times: int) -> Any:
    """Repeats the default value of a field."""
    value = getattr(PLAIN, field.name)
    if value is None:
        return pa.nulls(times, field.type)
    return pa.repeat(pa.scalar(value, field.type), times)


def make_column(
    values: Callable[[str], list[Any]], metas: list[Meta], name: str, queues: Mapping[int, Queue]
) -> list[Any]:
    if name in QUEUE_COLUMNS:
        names = {id: get_queue_field(queue, name) for id, queue in queues.items()}
        return list(map(names.get, values("queue_id")))
    if name in ("headers", "labels"):
        texts = [getattr(meta, name) for meta in metas]
        return [None if each is None else list(each.items()) for each in texts]
    return list(map(attrgetter(name), metas)) if name in META_COLUMNS else values(name)


def get_queue_field(queue: Queue, name: str) -> str:
    return {"tenant": queue.scope.tenant, "scope": queue.scope.name, "queue": queue.name}[name]


# Values by column name.
Columns: TypeAlias = dict[str, list[Any]]

# Maximum rows of a page, and about the maximum size of its bodies.
PAGE_ROWS, PAGE_BYTES = 20_000, 16_000_000
# A page may span this many times the positions of the last one.
MAX_SPAN_GROWTH = 8


@runtime_checkable
class Columnar(Protocol):
    async def columns(self, table: str, after: int, last: int, limit: int) -> Columns | None:
        """Returns all rows above `after`, up to the final position `last`. Returns None if they
        exceed the limit or are too large. A single position is never split."""


async def read_columns(
    store: Columnar, table: str, after: int, last: int
) -> AsyncIterator[Columns]:
    """Reads in pages, assuming that rows are as dense as on the page before."""
    span = (last - after) // 100 + 1
    while after < last:
        end = min(after + span, last)
        found = await store.columns(table, after, end, PAGE_ROWS)
        if found is None:
            span = (end - after) // 2
            continue
        if found["id"]:
            yield found
        after, span = end, choose_next_span(span, found)


def choose_next_span(span: int, found: Columns) -> int:
    """Aims at three quarters of a full page."""
    full = max(len(found["id"]) / PAGE_ROWS, sum(map(len, found.get("body", ()))) / PAGE_BYTES)
    return max(int(span * min(0.75 / full, MAX_SPAN_GROWTH)) if full else span * MAX_SPAN_GROWTH, 1)
