"""Writes down everything a store holds after a storm."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import Struct

from penstock.model.message import Record, StoredMessage
from penstock.model.store_types import Cursor
from penstock.store import Store
from tests.checker import End, Recorder, Row, Stored
from tests.faults.storm.bodies import encode, read
from tests.faults.storm.scene import KILLERS

PAGE = 1_000
TICK = "penstock-tick"
Places = dict[int, tuple[str, ...]]


class Dumped(Struct):
    """How many messages are in which state; those that shared a queue with killers."""

    states: Counter[str]
    killers: int = 0
    innocents: int = 0
    # The most deliveries of an innocent one.
    deliveries: int = 0
    harmed: list[str] = []

    def count(self, line: Stored) -> None:
        self.states[line.state] += 1
        if line.queue != KILLERS:
            return
        if line.label.endswith("-bomb"):
            self.killers += 1
            return
        self.innocents += 1
        self.deliveries = max(self.deliveries, line.deliveries)
        if line.state != "completed":
            found = f"{line.state} after {line.deliveries} deliveries"
            self.harmed.append(f"innocent {line.label}: {found}")


async def dump(store: Store, recorder: Recorder, places: Places) -> Dumped:
    """Every message there is."""
    names = {queue.id: queue.name for queue in await store.queues()}
    dumped = Dumped(Counter())
    async for message in everything(store):
        record = await store.get(message.id)
        assert record is not None
        result = await store.result(message.id)
        line = make_stored(record, names[message.queue_id], result, places.get(message.id, ()))
        recorder.write([line])
        dumped.count(line)
    recorder.write([End(recorder.clock(), await store.now(), dumped.states.total())])
    return dumped


async def everything(store: Store) -> AsyncIterator[StoredMessage]:
    cursor = Cursor()
    while True:
        feed = await store.feed(cursor, PAGE)
        for message in feed.messages:
            yield message
        if not feed.messages and not feed.history:
            return
        cursor = feed.cursor


def make_stored(
    record: Record, queue: str, result: bytes | None, places: tuple[str, ...]
) -> Stored:
    message = record.message
    label, intact = read(message.body)
    # Others waited for the null of a message that completed without a result.
    kept = result in (None, b"null", label.encode(), encode(label))
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
