"""An idle store is read, not written."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.model.message import Nack
from penstock.model.queue import QueueState
from penstock.model.store_types import Claim, Cursor, Lock, Retention
from tests.conformance.stage import HOUR, LEASE_OVER, Stage

pytestmark = pytest.mark.anyio

Look = Callable[[Stage], Awaitable[object]]


async def empty_dead_claim(stage: Stage) -> object:
    return await stage.store.claim_dead(Claim((await stage.queue_id(),), "t"))


async def nothing_to_prune(stage: Stage) -> object:
    ids = (await stage.queue_id(),)
    return await stage.store.prune(Retention(ids, await stage.store.now(), 0))


LOOKS: dict[str, Look] = {
    "claim": lambda stage: stage.claim("empty", limit=10),
    "claim and wait": lambda stage: stage.claim("empty", wait=0.01),
    "claim by type": lambda stage: stage.broker.claim(("empty", ["a"]), consumer="t"),
    "claim by another type": lambda stage: stage.broker.claim(("mail", ["a"]), consumer="t"),
    "claim on several": lambda stage: stage.broker.claim(
        "empty", "paused", consumer="t", merge="rank"
    ),
    "claim on a paused queue": lambda stage: stage.claim("paused"),
    "claim on the dead letters": lambda stage: stage.claim("_dead_letter"),
    "claim_dead": empty_dead_claim,
    "wait_ready": lambda stage: stage.store.wait_ready([1], 0.01),
    "expired_leases": lambda stage: stage.sweep(),
    "promote": lambda stage: stage.promote(),
    "expire": lambda stage: stage.store.expire(100),
    "age": lambda stage: stage.store.age(1, 60, 100),
    "prune": nothing_to_prune,
    "sweep_keys": lambda stage: stage.store.sweep_keys(100),
    "fire": lambda stage: stage.tick(),
    "agent_runs": lambda stage: stage.store.agent_runs(),
    "dead_counts": lambda stage: stage.store.dead_counts(),
    "leases": lambda stage: stage.store.leases([Lock(1, 1)]),
    "get": lambda stage: stage.store.get(1),
    "find": lambda stage: stage.admin.find(),
    "queues": lambda stage: stage.admin.queues(),
    "feed": lambda stage: stage.store.feed(Cursor(), 10),
    "recent": lambda stage: stage.store.recent(0, 10),
    "past": lambda stage: stage.store.past(10, 0, 10),
    "held": lambda stage: stage.store.held(0, 10),
    "headings": lambda stage: stage.store.headings([1]),
    "census": lambda stage: stage.store.census(),
    "depths": lambda stage: stage.store.depths(10),
    "cursors": lambda stage: stage.store.cursors(),
    "schedules": lambda stage: stage.store.schedules(),
}


async def busy(stage: Stage) -> int:
    """Messages in every place, with nothing due; the version of the store then."""
    stage.version()
    await stage.queue("empty")
    await stage.queue("mail")
    await stage.publish(queue="mail", type="mail")
    await stage.queue("paused")
    await stage.publish(queue="paused")
    await stage.admin.set_state("paused", QueueState.PAUSED)
    await stage.publish(delay=HOUR, ttl=HOUR)
    await stage.publish()
    await stage.broker.settle(await stage.take(), Nack(delay=HOUR))
    await stage.publish_each(2, ordering_key="k")
    await stage.take(lease=HOUR)
    return stage.version()


@pytest.mark.parametrize("name", LOOKS)
async def test_a_look_that_finds_nothing_writes_nothing(stage: Stage, name: str) -> None:
    before = await busy(stage)
    await LOOKS[name](stage)
    assert stage.version() == before


# A look past messages of other types may be long; it is taken with the claim.
SHORT = [name for name in LOOKS if name != "claim by another type"]


@pytest.mark.parametrize("name", SHORT)
async def test_a_look_that_finds_nothing_waits_for_no_writer(stage: Stage, name: str) -> None:
    await busy(stage)
    with stage.engine.writing():
        await LOOKS[name](stage)


async def test_a_write_is_seen_from_outside(stage: Stage) -> None:
    before = stage.version()
    await stage.publish()
    assert stage.version() != before


async def test_what_is_overdue_is_written(stage: Stage) -> None:
    await stage.publish()
    await stage.take()
    await stage.travel(LEASE_OVER)
    before = stage.version()
    assert len(await stage.sweep()) == 1
    assert stage.version() != before
