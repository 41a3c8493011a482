"""Writes down everything a store holds after a storm."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

from penstock.message import Message, Record
from penstock.store import Store
from penstock.testing.checker import End, Recorder, Row, Stored
from penstock.ticket import Cursor
from tests.faults.storm.bodies import encode, read

PAGE = 1_000
TICK = "penstock-tick"
Places = dict[int, tuple[str, ...]]


async def dump(store: Store, recorder: Recorder, places: Places) -> Counter[str]:
    """Every message there is; how many are in which state."""
    names = {queue.id: queue.name for queue in await store.queues()}
    states: Counter[str] = Counter()
    async for message in everything(store):
        record = await store.get(message.id)
        assert record is not None
        result = await store.result(message.id)
        line = stored(record, names[message.queue_id], result, places.get(message.id, ()))
        recorder.write([line])
        states[line.state] += 1
    recorder.write([End(recorder.clock(), await store.now(), states.total())])
    return states


async def everything(store: Store) -> AsyncIterator[Message]:
    cursor = Cursor()
    while True:
        feed = await store.feed(cursor, PAGE)
        for message in feed.messages:
            yield message
        if not feed.messages and not feed.history:
            return
        cursor = feed.cursor


def stored(record: Record, queue: str, result: bytes | None, places: tuple[str, ...]) -> Stored:
    message = record.message
    label, intact = read(message.body)
    kept = result in (None, label.encode(), encode(label))
    tick = (message.meta.headers or {}).get(TICK)
    return Stored(
        message.id,
        label,
        queue,
        record.state.value,
        record.attempts,
        record.deliveries,
        tuple(
            Row(row.verb.value, row.state.value, row.fence, row.at, row.final)
            for row in record.timeline
        ),
        places,
        intact and kept,
        record.due_at,
        message.meta.parent_id,
        message.type if tick else None,
        int(datetime.fromisoformat(tick).timestamp()) * 1_000_000 if tick else None,
    )
