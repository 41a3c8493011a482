"""A store set up for a test: its broker, its time, and what a test asks about it."""

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock.broker.local import Broker
from penstock.errors import PenstockError
from penstock.model.message import (
    Draft,
    HistoryRow,
    Leased,
    Moment,
    Reclaim,
    Record,
    Settlement,
    SettleReject,
    State,
    Verb,
)
from penstock.model.queue import Schedule
from penstock.model.store_types import Answer, Claim, Firing, Lease, Move, PlaceCount, Retention
from penstock.rules import cron, drafts, lifecycle
from penstock.store import Store
from tests.conformance.engines import Engine

HOUR = 3_600.0
DAY = 24 * HOUR
# Longer than the default lease.
LEASE_OVER = 31.0


class Stage:
    def __init__(self, engine: Engine, store: Store, handles: AsyncExitStack) -> None:
        self.engine = engine
        self.store = store
        self.handles = handles
        self.broker = Broker(store)
        handles.push_async_callback(self.broker.waits.close)
        self.admin = self.broker.admin

    async def travel(self, seconds: float) -> None:
        await self.engine.travel(seconds)

    async def another(self) -> "Stage":
        """A second broker, on a handle of its own where the store may have several."""
        if not self.engine.lasting:
            return Stage(self.engine, self.store, self.handles)
        store = await self.handles.enter_async_context(await self.engine.open())
        return Stage(self.engine, store, self.handles)

    async def reopened(self) -> "Stage":
        """The store after its only handle was closed."""
        if not self.engine.lasting:
            pytest.skip("this store ends with its handle")
        await self.store.close()
        return await self.another()

    def version(self) -> int:
        version = self.engine.version()
        if version is None:
            pytest.skip("nobody outside sees this store's writes")
        return version

    async def queue(self, name: str = "work", preset_name: str = "default", **settings: Any) -> int:
        created = await self.admin.create_queue(name, preset_name=preset_name, **settings)
        return created.id

    async def queue_id(self, name: str = "default") -> int:
        return (await self.admin.queue(name)).id

    async def publish(self, body: bytes = b"", **fields: Any) -> int:
        return (await self.broker.publish(Draft(body=body, **fields))).id

    async def publish_each(self, count: int, **fields: Any) -> list[int]:
        drafts = [Draft(**fields) for _ in range(count)]
        return [each.id for each in await self.broker.publish_many(drafts)]

    async def claim(self, queue: str = "default", limit: int = 1, **how: Any) -> list[Leased]:
        taken = await self.broker.claim(queue, limit=limit, consumer="tester", **how)
        return taken.messages

    async def ask(self, queue: str = "default", limit: int = 1, **how: Any) -> Claim:
        """A claim as the broker puts it to the store."""
        return Claim((await self.queue_id(queue),), "tester", limit, **how)

    async def take(self, queue: str = "default", **how: Any) -> Leased:
        """The next message, which must be there."""
        (leased,) = await self.claim(queue, **how)
        return leased

    async def drain(self, queue: str = "default") -> list[int]:
        """The ids in the order one consumer gets and completes them, one by one."""
        ids: list[int] = []
        while taken := await self.claim(queue):
            ids.append(taken[0].id)
            await self.broker.complete(taken[0])
        return ids

    async def dead(self, queue: str = "default", **fields: Any) -> int:
        """A message that was rejected; the queue must have nothing else ready."""
        id = await self.publish(queue=queue, **fields)
        leased = await self.take(queue)
        assert leased.id == id
        await self.broker.settle(leased, SettleReject("no good"))
        return id

    async def completed(self, queue: str = "default", **fields: Any) -> int:
        """A message that is done; the queue must have nothing else ready."""
        id = await self.publish(queue=queue, **fields)
        assert await self.drain(queue) == [id]
        return id

    async def sweep(self, limit: int = 1_000) -> list[Answer]:
        """Reclaims what ran out, the way the visibility agent does."""
        moves = await self.reclaims(limit)
        return await self.store.settle(moves) if moves else []

    async def reclaims(self, limit: int = 1_000) -> list[Move]:
        sweep = await self.store.expired_leases(limit)
        return [await self.decide(lease, Reclaim()) for lease in sweep.leases]

    async def decide(self, lease: Lease, settlement: Settlement) -> Move:
        queue = await self.broker.directory.get_by_id(lease.queue_id)
        return lifecycle.settle(lease, settlement, queue.settings)

    async def promote(self) -> int:
        return (await self.store.promote(1_000)).count

    async def tick(self) -> int:
        """Fires what is due, the way the scheduler does; how many schedules it fired."""
        firings = await self.firings()
        return sum(await self.store.fire(firings)) if firings else 0

    async def firings(self) -> list[Firing]:
        now = await self.store.now()
        return [await self.firing(each, now) for each in await self.store.schedules(now)]

    async def firing(self, schedule: Schedule, now: Moment) -> Firing:
        queue = await self.broker.directory.get_by_id(schedule.queue_id)
        ticks, next_at = cron.find_due_ticks(schedule, now)
        entries = tuple(drafts.make_entry(schedule.draft, queue) for _ in ticks)
        return Firing(schedule.id, schedule.next_at, next_at, entries)

    async def prune(self, age: float, queue: str = "default", after: int = 0) -> int:
        """Lets go of what ended longer than `age` ago, the way the archiver does."""
        before = await self.store.now() - int(age * 1_000_000)
        retention = Retention((await self.queue_id(queue),), before, after)
        return (await self.store.prune(retention)).count

    async def record(self, id: int) -> Record:
        record = await self.store.get(id)
        assert record is not None
        return record

    async def state(self, id: int) -> State:
        return (await self.record(id)).state

    async def counters(self, id: int) -> tuple[State, int, int]:
        """Its state, attempts and deliveries."""
        record = await self.record(id)
        return record.state, record.attempts, record.deliveries

    async def life(self, id: int) -> list[tuple[Verb, State]]:
        return [(row.verb, row.state) for row in (await self.record(id)).timeline]

    async def last(self, id: int) -> HistoryRow:
        return (await self.record(id)).timeline[-1]

    async def places(self, queue: str = "default") -> dict[str, int]:
        """How many messages of the queue are in each place that has any."""
        tallies = await self.tallies(queue)
        whole = tallies.pop("message", None)
        if whole is not None:
            assert whole.count == sum(each.count for each in tallies.values())
            assert whole.digest == sum(each.digest for each in tallies.values())
        return {place: tally.count for place, tally in tallies.items() if tally.count}

    async def tallies(self, queue: str = "default") -> dict[str, PlaceCount]:
        queue_id = await self.queue_id(queue)
        found = [each for each in await self.store.census() if each.queue_id == queue_id]
        return {tally.place: tally for tally in found}

    async def all(self, *ids: int) -> tuple[list[PlaceCount], list[Record | None]]:
        """What can be seen of the store, to compare before and after."""
        return await self.store.census(), [await self.store.get(id) for id in ids]


async def refusal(call: Awaitable[object]) -> str | None:
    """The code the call was refused with; None if it was not."""
    try:
        await call
    except PenstockError as error:
        return error.code
    return None


def micros(seconds: float) -> Moment:
    return int(seconds * 1_000_000)
