"""Whatever is done in whatever order, every message is in one place and ends at most once."""

import random
from collections import Counter

import anyio
import pytest

from penstock.model.message import (
    Dedup,
    Draft,
    Fail,
    Leased,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
)
from penstock.model.store_types import Completion
from tests.conformance.stage import LEASE_OVER, Stage, refusal

pytestmark = pytest.mark.anyio

WAYS: list[Settlement] = [
    Nack(delay=0),
    Nack(delay=9),
    Nack(),
    Fail("f"),
    SettleReject("r"),
    Release(),
    Park(),
    SettleCancelled(),
]


EXPECTED = (None, "LOCK_LOST", "INVALID_STATE", "IDEMPOTENCY_CONFLICT")


class Life:
    """A producer, a consumer and an operator in one, with a die."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.die = random.Random(seed)
        self.held: list[Leased] = []

    async def live(self, steps: int) -> None:
        acts = [self.publish, self.publish, self.claim, self.claim, self.settle, self.settle]
        acts += [self.complete, self.operate, self.upkeep]
        for _ in range(steps):
            assert await refusal(self.die.choice(acts)()) in EXPECTED
            await anyio.lowlevel.checkpoint()

    async def publish(self) -> None:
        key, dedup = self.die.choice([None, "a", "b"]), self.die.choice([None, None, "k", "l"])
        draft = Draft(
            priority=self.die.randrange(3),
            delay=self.die.choice([0, 0, 5]),
            ttl=self.die.choice([None, None, 40]),
            ordering_key=key,
            dedup=None if dedup is None else Dedup(dedup, self.die.choice([None, 30])),
            max_attempts=self.die.choice([None, 2]),
        )
        await self.stage.broker.publish_many([draft] * self.die.randrange(1, 4))

    async def claim(self) -> None:
        queue = self.die.choice(["default", "default", "_dead_letter"])
        self.held += await self.stage.claim(queue, self.die.randrange(1, 4), begins=True)

    async def settle(self) -> None:
        if self.held:
            leased = self.die.choice(self.held)
            await self.stage.broker.settle(leased, self.die.choice(WAYS))

    async def complete(self) -> None:
        some = self.die.sample(self.held, min(2, len(self.held)))
        await self.stage.broker.complete_many([Completion(each.id, each.fence) for each in some])

    async def operate(self) -> None:
        ids = [record.message.id for record in await self.stage.admin.find(limit=9)]
        if ids:
            await self.operate_on(self.die.choice(ids), self.die.randrange(3))

    async def operate_on(self, id: int, way: int) -> None:
        if way == 0:
            await self.stage.admin.redrive(id)
        else:
            await self.stage.admin.cancel(id, force=way == 1)

    async def upkeep(self) -> None:
        await self.stage.travel(self.die.choice([1, 10, LEASE_OVER]))
        await self.stage.promote()
        await self.stage.sweep()
        await self.stage.store.expire(9)
        await self.stage.store.sweep_keys(9)


@pytest.mark.parametrize("seed", range(4))
async def test_every_message_is_in_one_place(stage: Stage, seed: int) -> None:
    async with anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(Life(await stage.another(), 100 * seed + n).live, 60)
    await check_balance(stage)


async def check_balance(stage: Stage) -> None:
    """`places` itself checks that the digests of all places add up to all messages."""
    places = await stage.places()
    names = {"claimed": "lease", "ready": "ready", "scheduled": "scheduled", "dead": "dead"}
    records = await stage.admin.find(limit=1_000)
    assert Counter(names.get(record.state, "ended") for record in records) == places
    for record in records:
        finals = [row.final for row in record.timeline]
        assert finals.count(True) == record.state.final
        assert not any(finals[:-1])
        assert record.deliveries >= 0
