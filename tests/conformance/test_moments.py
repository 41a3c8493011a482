"""Which side of a boundary the very moment is on."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.message import Dedup, Draft, State
from penstock.model.queue import Schedule
from penstock.model.store_types import AnswerKind
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio

MOMENT = 0.000_001


@pytest.fixture(autouse=True)
def still(stage: Stage) -> None:
    if not stage.engine.still:
        pytest.skip("the clock of this store cannot be stopped")


async def test_a_lease_holds_in_its_last_moment(stage: Stage) -> None:
    id = await stage.publish()
    await stage.take(lease=30)
    await stage.travel(30)
    assert (await stage.store.expired_leases(10)).leases == []
    await stage.travel(MOMENT)
    assert [lease.id for lease in (await stage.store.expired_leases(10)).leases] == [id]


async def test_a_reclaim_holds_from_the_moment_after_the_lease(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take(lease=30)
    await stage.travel(30 + MOMENT)
    (move,) = await stage.reclaims()
    (early,) = await stage.store.settle([replace(move, expired_by=leased.lease_until)])
    assert early.kind is not AnswerKind.DONE
    (answer,) = await stage.store.settle([move])
    assert answer.kind is AnswerKind.DONE


@pytest.mark.parametrize("wants", ["default", ("default", [Draft().type])])
async def test_a_message_is_not_handed_out_in_the_moment_it_expires(
    stage: Stage, wants: Any
) -> None:
    id = await stage.publish(ttl=10)
    await stage.travel(10)
    assert (await stage.broker.claim(wants, consumer="t")).messages == []
    assert await stage.state(id) is State.EXPIRED


@pytest.mark.parametrize("delay", [0, 60])
async def test_a_message_expires_in_its_moment(stage: Stage, delay: float) -> None:
    await stage.publish(ttl=10, delay=delay)
    await stage.travel(10 - MOMENT)
    assert await stage.store.expire(10) == 0
    await stage.travel(MOMENT)
    assert await stage.store.expire(10) == 1


async def test_a_message_is_due_in_its_moment(stage: Stage) -> None:
    id = await stage.publish(delay=10)
    await stage.travel(10 - MOMENT)
    assert await stage.promote() == 0
    await stage.travel(MOMENT)
    assert await stage.promote() == 1
    assert await stage.state(id) is State.READY


async def test_a_window_is_over_in_its_last_moment(stage: Stage) -> None:
    first = await stage.publish(dedup=Dedup("k", window=10))
    await stage.travel(10 - MOMENT)
    assert await stage.publish(dedup=Dedup("k", window=10)) == first
    await stage.travel(MOMENT)
    assert await stage.publish(dedup=Dedup("k", window=10)) != first


async def test_a_result_is_gone_in_its_last_moment(stage: Stage) -> None:
    await stage.queue("work", keep_results=10)
    id = await stage.publish(queue="work")
    await stage.broker.complete(await stage.take("work"), b"result")
    await stage.travel(10 - MOMENT)
    assert await stage.store.result(id) == b"result"
    await stage.travel(MOMENT)
    assert await stage.store.result(id) is None


async def test_a_tick_is_free_in_the_moment_it_is_due(stage: Stage) -> None:
    assert await stage.store.claim_tick("archiver", 60, "a")
    await stage.travel(60 - MOMENT)
    assert not await stage.store.claim_tick("archiver", 60, "b")
    await stage.travel(MOMENT)
    assert await stage.store.claim_tick("archiver", 60, "b")


async def test_a_schedule_fires_in_its_moment(stage: Stage) -> None:
    schedule = await stage.admin.schedule(Schedule("n", "* * * * *", Draft()))
    left = (schedule.next_at - await stage.store.now()) / 1_000_000
    await stage.travel(left - MOMENT)
    assert await stage.tick() == 0
    await stage.travel(MOMENT)
    assert await stage.tick() == 1
