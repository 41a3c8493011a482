"""Nouns become columns."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from penstock.message import PLAIN, HistoryRow, Message, Meta
from penstock.queue import Queue

PLACE = {"tenant", "scope", "queue"}
OF_META = set(Meta.__struct_fields__)


def batch_of(
    rows: Sequence[Message] | Sequence[HistoryRow], schema: Any, queues: Mapping[int, Queue]
) -> Any:
    """One Arrow batch. A queue that is gone has a number and no name."""
    plain = all(getattr(row, "meta", None) is PLAIN for row in rows)
    columns = [
        repeated(field, len(rows))
        if plain and field.name in OF_META
        else pa.array(values_of(rows, field.name, queues), type=field.type, from_pandas=False)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def repeated(field: Any, times: int) -> Any:
    """What every message has that says nothing else."""
    value = getattr(PLAIN, field.name)
    if value is None:
        return pa.nulls(times, field.type)
    return pa.repeat(pa.scalar(value, field.type), times)


def values_of(rows: Sequence[Any], name: str, queues: Mapping[int, Queue]) -> list[Any]:
    if name in PLACE:
        names = {id: place_of(queue, name) for id, queue in queues.items()}
        return list(map(names.get, map(attrgetter("queue_id"), rows)))
    if name in ("headers", "labels"):
        texts = [getattr(row.meta, name) for row in rows]
        return [None if each is None else list(each.items()) for each in texts]
    of_meta = name in OF_META and rows and isinstance(rows[0], Message)
    return list(map(attrgetter(f"meta.{name}" if of_meta else name), rows))


def place_of(queue: Queue, name: str) -> str:
    return {"tenant": queue.scope.tenant, "scope": queue.scope.name, "queue": queue.name}[name]
