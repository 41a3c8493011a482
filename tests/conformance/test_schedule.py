"""Messages that wait for a moment."""

import anyio
import pytest

from penstock.model.message import Nack, State
from tests.conformance.stage import DAY, HOUR, Stage, micros

pytestmark = pytest.mark.anyio


async def test_a_delayed_message_waits(stage: Stage) -> None:
    before = await stage.store.now()
    id = await stage.publish(delay=60)
    record = await stage.record(id)
    assert await stage.counters(id) == (State.SCHEDULED, 0, 0)
    assert await stage.places() == {"scheduled": 1}
    assert record.due_at is not None
    assert before + micros(60) <= record.due_at <= await stage.store.now() + micros(60)
    assert await stage.claim() == []


async def test_a_message_for_a_moment_waits_for_it(stage: Stage) -> None:
    run_at = await stage.store.now() + micros(60)
    record = await stage.record(await stage.publish(run_at=run_at))
    assert (record.state, record.run_at, record.due_at) == (State.SCHEDULED, run_at, run_at)


@pytest.mark.parametrize("ago", [1, DAY, 1_000 * DAY])
async def test_a_moment_that_is_past_is_now(stage: Stage, ago: float) -> None:
    id = await stage.publish(run_at=await stage.store.now() - micros(ago))
    assert await stage.state(id) is State.READY
    assert await stage.drain() == [id]


async def test_nothing_is_promoted_before_it_is_due(stage: Stage) -> None:
    id = await stage.publish(delay=60)
    await stage.travel(55)
    promoted = await stage.store.promote(10)
    record = await stage.record(id)
    assert (promoted.count, promoted.next_at) == (0, record.due_at)
    assert promoted.now < micros(60) + record.message.created_at
    assert await stage.claim() == []


async def test_what_is_due_becomes_ready(stage: Stage) -> None:
    id = await stage.publish(b"later", delay=60)
    await stage.travel(61)
    promoted = await stage.store.promote(10)
    assert (promoted.count, promoted.next_at) == (1, None)
    assert await stage.places() == {"ready": 1}
    leased = await stage.take()
    assert (leased.id, leased.body, leased.deliveries) == (id, b"later", 1)


async def test_promotion_is_bounded_and_says_when_the_next_is_due(stage: Stage) -> None:
    ids = [await stage.publish(delay=delay) for delay in (10, 20, 30, 40)]
    await stage.travel(35)
    promoted = await stage.store.promote(2)
    assert (promoted.count, promoted.next_at) == (2, (await stage.record(ids[2])).due_at)
    promoted = await stage.store.promote(10)
    assert (promoted.count, promoted.next_at) == (1, (await stage.record(ids[3])).due_at)


async def test_what_was_delayed_gets_back_its_place_by_id(stage: Stage) -> None:
    ids = [await stage.publish(delay=delay) for delay in (20, 10, 0, 5)]
    await stage.travel(21)
    await stage.promote()
    assert await stage.drain() == ids


@pytest.mark.parametrize("delay", [HOUR, 30 * DAY, 3_650 * DAY])
async def test_a_delay_may_be_longer_than_any_lease(stage: Stage, delay: float) -> None:
    id = await stage.publish(delay=delay)
    await stage.travel(delay - 30)
    assert await stage.sweep() == []
    assert await stage.promote() == 0
    await stage.travel(31)
    assert await stage.promote() == 1
    assert await stage.drain() == [id]


async def test_a_retry_is_promoted_like_a_delay(stage: Stage) -> None:
    fresh = await stage.publish()
    await stage.broker.settle(await stage.take(), Nack(delay=10))
    delayed = await stage.publish(delay=20)
    promoted = await stage.store.promote(10)
    assert promoted.next_at == (await stage.record(fresh)).due_at
    await stage.travel(21)
    assert await stage.promote() == 2
    assert await stage.drain() == [fresh, delayed]


async def test_two_promotions_at_once_promote_once(stage: Stage) -> None:
    await stage.publish_each(50, delay=10)
    await stage.travel(11)
    counts: list[int] = []

    async def promote(at: Stage) -> None:
        counts.append(await at.promote())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(promote, await stage.another())
    assert sum(counts) == 50
    assert await stage.places() == {"ready": 50}


async def test_a_promotion_leaves_no_row_in_the_history(stage: Stage) -> None:
    id = await stage.publish(delay=10)
    await stage.travel(11)
    await stage.promote()
    assert await stage.life(id) == []
    assert (await stage.record(id)).due_at is None
