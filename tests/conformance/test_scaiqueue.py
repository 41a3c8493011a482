"""The acceptance cases of ScaiQueue that need no HTTP, each under its own words (acceptance.md)."""

from collections import Counter

import anyio
import pytest

from penstock.errors import Archived
from penstock.model.message import Dedup, Draft, Nack, State, Verb
from penstock.model.queue import DEAD_LETTER, QueueState
from penstock.model.store_types import Completion, Cursor, Query
from tests.conformance.stage import HOUR, LEASE_OVER, Stage, refusal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scai(stage: Stage) -> Stage:
    await stage.queue("orders", "scaiqueue")
    return stage


async def test_a_new_scope_has_dead_letters_and_its_name_once(stage: Stage) -> None:
    scope = await stage.store.create_scope("default", "shop")
    assert await stage.store.queue("default", "shop", DEAD_LETTER) is not None
    assert await refusal(stage.store.create_scope("default", "shop")) == "SLUG_CONFLICT"
    assert await stage.store.scope("default", "shop") == scope


@pytest.mark.parametrize("state", [QueueState.PAUSED, QueueState.DRAINING, QueueState.ARCHIVED])
async def test_a_queue_that_is_shut_refuses_with_its_own_code_and_writes_nothing(
    scai: Stage, state: QueueState
) -> None:
    await scai.store.change_queue(await scai.queue_id("orders"), state=state)
    fresh = await scai.another()
    told = await refusal(fresh.publish(queue="orders"))
    assert told == f"QUEUE_{state.value.upper()}"
    assert await scai.places("orders") == {}


async def test_under_the_default_preset_a_paused_queue_still_accepts(stage: Stage) -> None:
    await stage.queue("work")
    await stage.store.change_queue(await stage.queue_id("work"), state=QueueState.PAUSED)
    fresh = await stage.another()
    id = await fresh.publish(queue="work")
    assert await stage.state(id) is State.READY
    assert await fresh.claim("work") == []


async def test_under_a_paused_scope_a_claim_is_empty(scai: Stage) -> None:
    await scai.publish(queue="orders")
    scope = await scai.store.scope("default", "default")
    assert scope is not None
    await scai.store.pause_scope(scope.id, True)
    assert await (await scai.another()).claim("orders") == []


async def test_1000_messages_of_one_moment_are_drained_in_publish_order(stage: Stage) -> None:
    await stage.queue("work", ordering="fifo")
    ids = await stage.publish_each(1_000, queue="work")
    found: list[int] = []
    while taken := await stage.claim("work", limit=100):
        found += [leased.id for leased in taken]
        await stage.store.complete([Completion(each.id, each.fence) for each in taken])
    assert found == ids


async def test_tiers_are_drained_from_critical_to_low_and_equals_by_age(scai: Stage) -> None:
    await scai.queue("tiers", "scaiqueue", ordering="priority")
    low, critical, normal, normal_too = [
        await scai.publish(queue="tiers", priority=tier * 1_000 + 500) for tier in (1, 4, 2, 2)
    ]
    assert await scai.drain("tiers") == [critical, normal, normal_too, low]


async def test_the_earliest_deadline_is_first_and_none_is_last(stage: Stage) -> None:
    await stage.queue("work", ordering="deadline")
    now = await stage.store.now()
    none, late, early = [
        await stage.publish(queue="work", deadline=deadline)
        for deadline in (None, now + 9_000_000_000, now + 8_000_000_000)
    ]
    assert await stage.drain("work") == [early, late, none]


async def test_a_claimed_message_is_counted_where_it_is(scai: Stage) -> None:
    ids = await scai.publish_each(3, queue="orders")
    await scai.take("orders")
    record = await scai.record(ids[0])
    assert (record.state, record.deliveries, record.consumer) == (State.CLAIMED, 1, "tester")
    assert await scai.places("orders") == {"ready": 2, "lease": 1}


async def test_8_consumers_get_each_of_many_messages_once(scai: Stage) -> None:
    ids = await scai.publish_each(1_000, queue="orders")
    seen: Counter[int] = Counter()

    async def consume(stage: Stage) -> None:
        while taken := await stage.claim("orders", limit=20):
            seen.update(leased.id for leased in taken)

    consumers = [await scai.another() for _ in range(8)]
    async with anyio.create_task_group() as group:
        for consumer in consumers:
            group.start_soon(consume, consumer)
    assert seen == Counter(ids)


async def test_a_completion_is_one_row_of_history_with_the_story_it_belongs_to(
    scai: Stage,
) -> None:
    id = await scai.publish(queue="orders", correlation_id="order-7")
    await scai.broker.complete(await scai.take("orders"))
    feed = await scai.store.feed(Cursor(), 100)
    assert [(row.id, row.verb) for row in feed.history] == [(id, Verb.COMPLETE)]
    assert feed.messages[0].meta.correlation_id == "order-7"


async def test_failed_5_times_is_4_retries_with_backoff_and_then_dead(scai: Stage) -> None:
    id = await scai.publish(queue="orders")
    for _ in range(5):
        await scai.broker.settle(await scai.take("orders"), Nack("no"))
        await scai.travel(901)
        await scai.promote()
    rows = (await scai.record(id)).timeline
    assert [row.state for row in rows[:4]].count(State.DEAD) == 0
    assert (rows[-1].state, rows[-1].reason, rows[-1].error) == (
        State.DEAD, "retries_exhausted", "no",
    )  # fmt: skip
    found = await scai.broker.claim(DEAD_LETTER, consumer="operator")
    assert [leased.queue_id for leased in found.messages] == [await scai.queue_id("orders")]


async def test_the_message_of_a_consumer_that_died_is_claimable_again(scai: Stage) -> None:
    id = await scai.publish(queue="orders")
    await scai.take("orders")
    await scai.travel(LEASE_OVER)
    await scai.sweep()
    assert await scai.state(id) is State.READY


async def test_after_its_ttl_a_message_is_expired_and_a_claimed_one_is_not(scai: Stage) -> None:
    held = await scai.publish(queue="orders", ttl=1)
    await scai.take("orders")
    waiting = await scai.publish(queue="orders", ttl=1)
    await scai.travel(2)
    assert await scai.store.expire(100) == 1
    assert await scai.state(waiting) is State.EXPIRED
    assert await scai.state(held) is State.CLAIMED


async def test_retention_of_an_hour_takes_what_ended_61_minutes_ago(scai: Stage) -> None:
    old = await scai.completed("orders")
    await scai.travel(120)
    young = await scai.completed("orders")
    await scai.travel(59 * 60)
    assert await scai.prune(HOUR, "orders") == 1
    with pytest.raises(Archived):
        await scai.store.get(old)
    assert await scai.state(young) is State.COMPLETED


async def test_what_no_export_has_read_stays(scai: Stage) -> None:
    await scai.store.save_cursor("lake", (await scai.store.feed(Cursor(), 100)).cursor)
    await scai.completed("orders")
    await scai.travel(61 * 60)
    assert await scai.prune(HOUR, "orders") == 0


async def test_a_starved_message_is_aged_past_those_that_came_later(scai: Stage) -> None:
    await scai.queue("tiers", "scaiqueue", ordering="priority")
    low = await scai.publish(queue="tiers", priority=1_000)
    await scai.travel(HOUR)
    await scai.publish(queue="tiers", priority=4_000)
    assert await scai.store.age(await scai.queue_id("tiers"), 60.0, 100) == 1
    assert (await scai.take("tiers")).id == low


async def test_50_publishes_of_one_key_at_once_make_one_message(scai: Stage) -> None:
    draft = Draft(queue="orders", body=b"{}", dedup=Dedup("order-1"))
    seen: Counter[int] = Counter()

    async def publish(stage: Stage) -> None:
        seen[(await stage.broker.publish(draft)).id] += 1

    others = [await scai.another() for _ in range(4)]
    async with anyio.create_task_group() as group:
        for turn in range(50):
            group.start_soon(publish, others[turn % 4])
    assert list(seen.values()) == [50]
    other = Draft(queue="orders", body=b"[]", dedup=Dedup("order-1"))
    assert await refusal(scai.broker.publish(other)) == "IDEMPOTENCY_CONFLICT"


async def test_a_correlation_id_over_3_queues_tells_the_whole_story_in_order(
    scai: Stage,
) -> None:
    queues = [await scai.queue(name) for name in ("first", "second", "third")]
    ids = [
        await scai.publish(queue=name, correlation_id="order-7")
        for name in ("first", "second", "third")
    ]
    await scai.publish(queue="first", correlation_id="another")
    story = await scai.store.find(Query(tuple(queues), correlation_id="order-7"))
    assert [record.message.id for record in story] == ids[::-1]


async def test_the_11th_message_of_a_depth_of_10_is_refused(scai: Stage) -> None:
    await scai.queue("small", "scaiqueue", max_depth=10)
    await scai.publish_each(10, queue="small")
    assert await refusal(scai.publish(queue="small")) == "QUEUE_FULL"
    assert await scai.places("small") == {"ready": 10}
