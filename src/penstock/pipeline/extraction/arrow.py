"""Converts messages and history rows to Arrow batches."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

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
    values: Callable[[str], list[Any]],
    metas: list[Meta],
    name: str,
    queues: Mapping[int, Queue],
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
