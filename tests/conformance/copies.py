"""Two stores that are copied in either direction, and what must be the same in both."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.model.message import Record
from penstock.store import Store
from tests.conformance.engines import Sqlite
from tests.conformance.stage import Stage


class Pair(NamedTuple):
    source: Stage
    target: Stage


@asynccontextmanager
async def open_pair(stage: Stage, direction: str) -> AsyncIterator[Pair]:
    """The store and one in memory; `direction` is "from" or "to" the store."""
    async with AsyncExitStack() as handles:
        engine = Sqlite(None)
        store = await handles.enter_async_context(await engine.open())
        other = Stage(engine, store, handles)
        yield Pair(stage, other) if direction == "from" else Pair(other, stage)


def without_place(record: Record | None, queues: dict[int, str]) -> Any:
    """A record without the numbers that are each store's own."""
    assert record is not None
    timeline = tuple(replace(row, position=0, queue_id=0) for row in record.timeline)
    message = replace(record.message, queue_id=0)
    return queues[record.message.queue_id], replace(record, message=message, timeline=timeline)


async def read_all(store: Store, ids: list[int]) -> list[Any]:
    queues = {queue.id: queue.name for queue in await store.queues()}
    return [without_place(await store.get(id), queues) for id in ids]
