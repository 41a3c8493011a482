"""Who gets which message, under which fence, for how long."""

import anyio
import pytest

from penstock.errors import InvalidInput
from penstock.model.message import Nack, Release, State
from penstock.model.queue import QueueState
from penstock.model.store_types import Completion
from tests.conformance.stage import Stage, micros

pytestmark = pytest.mark.anyio


async def test_a_claimed_message_is_in_its_consumers_hands(stage: Stage) -> None:
    first, second = await stage.publish_each(2)
    taken = await stage.broker.claim("default", consumer="worker-1")
    assert [leased.id for leased in taken.messages] == [first]
    record = await stage.record(first)
    assert (record.state, record.attempts, record.deliveries) == (State.CLAIMED, 0, 1)
    assert record.consumer == "worker-1"
    assert record.lease_until == taken.messages[0].lease_until
    assert await stage.places() == {"ready": 1, "lease": 1}
    assert await stage.state(second) is State.READY


async def test_a_claim_hands_over_the_whole_message(stage: Stage) -> None:
    id = await stage.publish(b"\x00body", type="mail.send", priority=3, labels={"a": "b"})
    leased = await stage.take()
    message = (await stage.record(id)).message
    assert (leased.id, leased.queue_id, leased.type) == (id, message.queue_id, "mail.send")
    assert (leased.body, leased.priority, leased.created_at) == (b"\x00body", 3, message.created_at)
    assert leased.meta == message.meta
    assert (leased.attempts, leased.deliveries, leased.suspect) == (0, 1, False)


@pytest.mark.parametrize(("asked", "lasts"), [(None, 45), (7, 7), (0.5, 0.5)])
async def test_a_lease_ends_by_the_clock_of_the_store(
    stage: Stage, asked: float | None, lasts: float
) -> None:
    await stage.queue("work", lease=45)
    await stage.publish(queue="work")
    before = await stage.store.now()
    leased = await stage.take("work", lease=asked)
    after = await stage.store.now()
    assert before + micros(lasts) <= leased.lease_until <= after + micros(lasts)


async def test_a_messages_own_lease_comes_before_the_queues(stage: Stage) -> None:
    own, plain = await stage.publish(lease=500), await stage.publish()
    before = await stage.store.now()
    claimed = {leased.id: leased for leased in await stage.claim(limit=2)}
    assert claimed[own].lease_until >= before + micros(500)
    assert claimed[plain].lease_until < before + micros(100)
    assert (await stage.record(own)).lease_until == claimed[own].lease_until


async def test_a_messages_own_lease_outlives_a_retry(stage: Stage) -> None:
    await stage.publish(lease=500)
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    assert (await stage.take()).lease_until >= await stage.store.now() + micros(400)


async def test_a_claim_takes_no_more_than_its_limit(stage: Stage) -> None:
    ids = await stage.publish_each(5)
    assert [leased.id for leased in await stage.claim(limit=3)] == ids[:3]
    assert [leased.id for leased in await stage.claim(limit=3)] == ids[3:]


async def test_a_batch_gets_what_there_is_under_different_locks(stage: Stage) -> None:
    await stage.publish_each(3)
    claimed = await stage.claim(limit=5)
    assert len({(leased.id, leased.fence) for leased in claimed}) == 3


async def test_fences_only_grow(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish_each(3)
    await stage.publish_each(3, queue="work")
    other = await stage.another()
    fences = [(await at.take(name)).fence for name in ("default", "work") for at in (stage, other)]
    await stage.broker.settle(await stage.take(), Release())
    fences.append((await stage.take()).fence)
    assert fences == sorted(set(fences))
    assert fences[0] > 0


async def test_a_claimed_message_is_nobody_elses(stage: Stage) -> None:
    await stage.publish()
    await stage.take()
    assert await stage.claim() == []
    assert await (await stage.another()).claim() == []


async def test_an_empty_claim_says_the_state_of_its_queue(stage: Stage) -> None:
    taken = await stage.broker.claim("default", consumer="tester")
    assert (taken.messages, taken.queues) == ([], {"default": QueueState.ACTIVE})


async def test_a_claim_for_types_leaves_the_others_untouched(stage: Stage) -> None:
    mail, _, chat = [await stage.publish(type=type) for type in ("mail", "sms", "chat")]
    taken = await stage.broker.claim(("default", ["mail", "chat"]), consumer="t", limit=9)
    assert [leased.id for leased in taken.messages] == [mail, chat]
    assert await stage.places() == {"ready": 1, "lease": 2}
    assert (await stage.take()).type == "sms"


async def test_a_type_filter_keeps_the_order_of_the_queue(stage: Stage) -> None:
    low = await stage.publish(type="a", priority=1)
    high = await stage.publish(type="b", priority=9)
    other = await stage.publish(type="a", priority=5)
    await stage.publish(type="c", priority=10)
    taken = await stage.broker.claim(("default", ["a", "b"]), consumer="t", limit=9)
    assert [leased.id for leased in taken.messages] == [high, other, low]


async def test_several_queues_take_turns(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish_each(4)
    await stage.publish_each(4, queue="work")
    for _ in range(4):
        await stage.broker.claim("default", "work", consumer="t")
    assert await stage.places() == await stage.places("work") == {"ready": 2, "lease": 2}


async def test_a_claim_on_several_queues_fills_up_from_all(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish_each(2)
    await stage.publish_each(2, queue="work")
    taken = await stage.broker.claim("default", "work", consumer="t", limit=3)
    assert len(taken.messages) == 3


async def test_several_queues_can_be_one_line_by_rank(stage: Stage) -> None:
    await stage.queue("work")
    line = [(3, "work"), (9, "default"), (5, "work"), (5, "default"), (1, "default")]
    ids = [await stage.publish(queue=name, priority=priority) for priority, name in line]
    taken = await stage.broker.claim("default", "work", consumer="t", limit=4, merge="rank")
    assert [leased.id for leased in taken.messages] == [ids[1], ids[2], ids[3], ids[0]]


async def test_one_line_over_several_queues_is_of_the_same_types(stage: Stage) -> None:
    await stage.queue("work")
    mail = [await stage.publish(queue=name, type="mail") for name in ("work", "default")]
    await stage.publish(type="sms")
    wants = [("work", ["mail"]), ("default", ["mail"])]
    taken = await stage.broker.claim(*wants, consumer="t", limit=9, merge="rank")
    assert [leased.id for leased in taken.messages] == mail
    with pytest.raises(InvalidInput):
        await stage.broker.claim("work", ("default", ["sms"]), consumer="t", merge="rank")


async def test_the_faststream_preset_makes_several_queues_one_line(stage: Stage) -> None:
    await stage.queue("one", "faststream")
    await stage.queue("two", "faststream")
    ids = []
    for name in ("two", "one", "two", "one"):
        ids.append(await stage.publish(queue=name))
        await stage.travel(1)
    taken = await stage.broker.claim("one", "two", consumer="t", limit=4)
    assert [leased.id for leased in taken.messages] == ids


async def test_every_message_goes_to_one_of_many_consumers(stage: Stage) -> None:
    published = [id for _ in range(5) for id in await stage.publish_each(1_000)]
    delivered: list[int] = []

    async def consume(at: Stage) -> None:
        while claimed := await at.claim(limit=50):
            delivered.extend(leased.id for leased in claimed)
            await at.broker.complete_many([Completion(each.id, each.fence) for each in claimed])

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(consume, await stage.another())
    assert sorted(delivered) == published
    assert await stage.places() == {"ended": 5_000}
