"""A queue with a limited depth refuses, or buries, what it has no room for."""

import anyio
import pytest

from penstock.errors import QueueFull
from penstock.model.message import Dedup, Draft, Nack, Release, State, Verb
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def full(stage: Stage, depth: int = 1, overflow: str = "reject") -> list[int]:
    await stage.queue("work", max_depth=depth, overflow=overflow)
    return await stage.publish_each(depth, queue="work")


async def test_one_too_many_is_refused(stage: Stage) -> None:
    await full(stage, 10)
    before = await stage.all()
    with pytest.raises(QueueFull, match="'work'"):
        await stage.publish(queue="work")
    assert await stage.all() == before


async def test_waiting_messages_take_room_and_claimed_ones_do_not(stage: Stage) -> None:
    await stage.queue("work", max_depth=2)
    await stage.publish(queue="work", delay=60)
    await stage.publish(queue="work")
    with pytest.raises(QueueFull):
        await stage.publish(queue="work")
    await stage.take("work")
    await stage.publish(queue="work")
    with pytest.raises(QueueFull):
        await stage.publish(queue="work")


async def test_the_dead_and_the_ended_take_no_room(stage: Stage) -> None:
    await stage.queue("work", max_depth=1)
    await stage.dead("work")
    await stage.completed("work")
    await stage.publish(queue="work")
    assert await stage.places("work") == {"dead": 1, "ended": 1, "ready": 1}


async def test_a_limit_is_one_queues_own(stage: Stage) -> None:
    await stage.publish_each(25)
    await full(stage, 10)
    await stage.publish_each(25)
    assert await stage.places() == {"ready": 50}
    assert await stage.places("work") == {"ready": 10}


async def test_an_overflow_can_go_to_the_dead(stage: Stage) -> None:
    await full(stage, overflow="dead")
    id = await stage.publish(queue="work")
    assert await stage.counters(id) == (State.DEAD, 0, 0)
    assert (await stage.record(id)).reason == "overflow"
    assert await stage.life(id) == [(Verb.PUBLISH, State.DEAD)]
    assert await stage.places("work") == {"ready": 1, "dead": 1}


async def test_a_keyed_overflow_holds_no_key(stage: Stage) -> None:
    await full(stage, overflow="dead")
    await stage.publish(queue="work", ordering_key="k")
    await stage.take("work")
    id = await stage.publish(queue="work", ordering_key="k")
    assert (await stage.take("work")).id == id


async def test_a_unique_overflow_holds_no_key(stage: Stage) -> None:
    await full(stage, overflow="dead")
    dead = await stage.publish(queue="work", dedup=Dedup("k", None))
    await stage.take("work")
    id = await stage.publish(queue="work", dedup=Dedup("k", None))
    assert id != dead
    assert (await stage.take("work")).id == id


async def test_what_comes_back_always_finds_room(stage: Stage) -> None:
    (first,) = await full(stage)
    for settlement in (Nack(delay=0), Nack(delay=5), Release()):
        leased = await stage.take("work")
        fresh = await stage.publish(queue="work")
        await stage.broker.settle(leased, settlement)
        assert (await stage.state(first)) in (State.READY, State.SCHEDULED)
        await stage.travel(6)
        await stage.promote()
        await stage.admin.cancel(fresh)


async def test_a_lost_message_always_finds_room(stage: Stage) -> None:
    (first,) = await full(stage)
    await stage.take("work")
    await stage.publish(queue="work")
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.state(first) is State.READY


async def test_a_batch_enters_as_far_as_there_is_room(stage: Stage) -> None:
    await stage.queue("work", max_depth=3)
    answers = await stage.broker.publish_many([Draft(queue="work")] * 5)
    assert [answer.code for answer in answers] == [None] * 3 + [QueueFull.code] * 2
    assert await stage.places("work") == {"ready": 3}


async def test_an_atomic_batch_enters_whole_or_not_at_all(stage: Stage) -> None:
    await stage.queue("work", max_depth=3)
    with pytest.raises(QueueFull):
        await stage.broker.publish_many([Draft(queue="work")] * 4, atomic=True)
    assert await stage.places("work") == {}
    await stage.broker.publish_many([Draft(queue="work")] * 3, atomic=True)
    assert await stage.places("work") == {"ready": 3}


async def test_a_limit_holds_among_many_publishers(stage: Stage) -> None:
    await stage.queue("work", max_depth=7)
    refused: list[QueueFull] = []

    async def publish() -> None:
        try:
            await stage.publish(queue="work")
        except QueueFull as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(publish)
    assert len(refused) == 13
    assert await stage.places("work") == {"ready": 7}


async def test_of_each_queue_it_is_told_since_when_the_next_message_waits(stage: Stage) -> None:
    work, empty = await stage.queue("work"), await stage.queue("empty")
    assert await stage.store.waiting_since() == {}
    began = await stage.store.now()
    await stage.publish(queue="work")
    await stage.travel(5)
    await stage.publish(queue="work")
    await stage.publish(queue="empty", delay=60)
    assert await stage.store.waiting_since() == {work: began}
    await stage.take("work")
    assert await stage.store.waiting_since() == {work: began + 5_000_000}
    await stage.travel(70)
    await stage.promote()
    assert await stage.store.waiting_since() == {
        work: began + 5_000_000,
        empty: began + 65_000_000,
    }
