"""Who is next in line, for each ordering a queue can have."""

import pytest

from penstock.errors import InvalidInput, NotYet
from penstock.model.message import Draft, Nack, Release
from tests.conformance.stage import HOUR, Stage, micros

pytestmark = pytest.mark.anyio


async def publish_all(stage: Stage, *priorities: int) -> list[int]:
    return [await stage.publish(queue="work", priority=priority) for priority in priorities]


async def test_fifo_is_the_order_of_publishing(stage: Stage) -> None:
    await stage.queue("work", ordering="fifo")
    ids = await stage.publish_each(1_000, queue="work")
    taken = [leased.id for _ in range(10) for leased in await stage.claim("work", limit=100)]
    assert taken == ids


async def test_fifo_knows_no_priority(stage: Stage) -> None:
    await stage.queue("work", ordering="fifo")
    ids = await publish_all(stage, 1, 9, 5)
    assert await stage.drain("work") == ids


@pytest.mark.parametrize("preset", ["default", "relay", "codeq"])
async def test_the_higher_priority_comes_first_and_equals_by_age(stage: Stage, preset: str) -> None:
    await stage.queue("work", preset)
    ids = await publish_all(stage, 0, 9, 5, 9, 0, 7)
    order = [ids[n] for n in (1, 3, 5, 2, 0, 4)]
    assert await stage.drain("work") == order


async def test_one_claim_is_in_the_order_of_the_line(stage: Stage) -> None:
    await stage.queue("work")
    ids = await publish_all(stage, 3, 9, -4, 9)
    claimed = await stage.claim("work", limit=10)
    assert [leased.id for leased in claimed] == [ids[n] for n in (1, 3, 0, 2)]


async def test_scaiqueue_tiers_are_priorities(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    low, critical, normal, background = await publish_all(stage, 1_500, 4_000, 2_999, 1_000)
    assert await stage.drain("work") == [critical, normal, low, background]


async def test_queuectl_runs_the_lower_number_sooner(stage: Stage) -> None:
    await stage.queue("work", "queuectl")
    ten, one, five = await publish_all(stage, -10, -1, -5)
    assert await stage.drain("work") == [one, five, ten]


@pytest.mark.parametrize(
    ("preset", "priority"), [("relay", 10), ("relay", -1), ("scaiqueue", 5001)]
)
async def test_a_priority_out_of_range_is_refused(stage: Stage, preset: str, priority: int) -> None:
    await stage.queue("work", preset)
    with pytest.raises(InvalidInput, match="priority"):
        await stage.publish(queue="work", priority=priority)
    assert await stage.places("work") == {}


async def test_codeq_brings_a_priority_into_range(stage: Stage) -> None:
    await stage.queue("work", "codeq")
    nine, more, less = await publish_all(stage, 9, 42, -3)
    assert (await stage.record(more)).message.priority == 9
    assert (await stage.record(less)).message.priority == 0
    assert await stage.drain("work") == [nine, more, less]


async def test_the_earliest_deadline_comes_first_and_none_last(stage: Stage) -> None:
    await stage.queue("work", ordering="deadline")
    now = await stage.store.now()
    none = await stage.publish(queue="work", priority=9)
    late, soon, same = [
        await stage.publish(queue="work", deadline=now + micros(seconds))
        for seconds in (2 * HOUR, HOUR, HOUR)
    ]
    assert await stage.drain("work") == [soon, same, late, none]


async def test_ready_time_is_the_order_in_which_messages_fall_due(stage: Stage) -> None:
    await stage.queue("work", "faststream")
    later, sooner = [await stage.publish(queue="work", delay=delay) for delay in (20, 10)]
    await stage.travel(15)
    between = await stage.publish(queue="work")
    await stage.travel(15)
    assert await stage.promote() == 2
    assert await stage.drain("work") == [sooner, between, later]


async def test_ready_time_puts_a_retry_where_it_fell_due(stage: Stage) -> None:
    await stage.queue("work", "faststream")
    retried = await stage.publish(queue="work")
    await stage.broker.settle(await stage.take("work"), Nack(delay=10))
    await stage.travel(5)
    fresh = await stage.publish(queue="work")
    await stage.travel(10)
    assert await stage.promote() == 1
    assert await stage.drain("work") == [fresh, retried]


@pytest.mark.parametrize("settlement", [Nack(delay=0), Release()])
async def test_a_message_that_comes_back_has_its_old_place(
    stage: Stage, settlement: Nack | Release
) -> None:
    ids = await stage.publish_each(3)
    await stage.broker.settle(await stage.take(), settlement)
    assert await stage.drain() == ids


async def test_a_delayed_message_gets_the_place_of_its_priority(stage: Stage) -> None:
    urgent = await stage.publish(priority=9, delay=10)
    plain = await stage.publish_each(2)
    await stage.travel(11)
    await stage.promote()
    assert await stage.drain() == [urgent, *plain]


async def test_an_urgent_message_of_a_new_rank_is_the_next_one(stage: Stage) -> None:
    for priority in range(1, 10):
        await stage.publish(priority=priority)
    with stage.engine.snapshot():
        await stage.take()
        urgent = await stage.publish(priority=50)
        assert (await stage.take()).id == urgent


async def test_a_rank_can_grow_with_age(stage: Stage) -> None:
    await stage.queue("work", seconds_per_level=10)
    (old,) = await publish_all(stage, 0)
    await stage.travel(5)
    (soon,) = await publish_all(stage, 1)
    await stage.travel(15)
    (late,) = await publish_all(stage, 1)
    assert await stage.drain("work") == [soon, old, late]


async def test_a_steady_urgent_flow_starves_nobody_where_age_counts(stage: Stage) -> None:
    await stage.queue("work", seconds_per_level=10)
    (old,) = await publish_all(stage, 0)
    taken: list[int] = []
    while old not in taken:
        await publish_all(stage, 5)
        await stage.travel(5)
        taken += [leased.id for leased in await stage.claim("work")]
        assert len(taken) <= 12


async def test_aging_lifts_the_longest_waiting_to_the_next_level(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    oldest, old = await publish_all(stage, 0, 0)
    await stage.travel(600)
    middle, high, young = await publish_all(stage, 5, 9, 0)
    assert await stage.store.age(await stage.queue_id("work"), 300, 1) == 1
    assert await stage.drain("work") == [high, oldest, middle, old, young]


async def test_aging_lifts_no_more_than_its_limit_over_all_levels(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    low, middle = await publish_all(stage, 0, 5)
    await stage.travel(600)
    (high,) = await publish_all(stage, 9)
    assert await stage.store.age(await stage.queue_id("work"), 300, 1) == 1
    assert await stage.drain("work") == [high, low, middle]


async def test_aging_lifts_nobody_who_waited_less(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    low, high = await publish_all(stage, 0, 9)
    await stage.travel(100)
    assert await stage.store.age(await stage.queue_id("work"), 300, 10) == 0
    assert await stage.drain("work") == [high, low]


async def test_aging_does_not_count_a_delay(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    low = await stage.publish(queue="work", delay=600)
    await stage.travel(600)
    await stage.promote()
    (high,) = await publish_all(stage, 9)
    assert await stage.store.age(await stage.queue_id("work"), 300, 10) == 0
    assert await stage.drain("work") == [high, low]


async def test_aging_lifts_nobody_above_the_highest_level(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    ids = await publish_all(stage, 5, 5)
    await stage.travel(600)
    assert await stage.store.age(await stage.queue_id("work"), 300, 10) == 0
    assert await stage.drain("work") == ids


async def test_aging_serves_a_starved_message_in_bounded_time(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    (starved,) = await publish_all(stage, 0)
    taken: list[int] = []
    while starved not in taken:
        await publish_all(stage, 3, 6, 9)
        await stage.travel(300)
        await stage.store.age(await stage.queue_id("work"), 300, 1_000)
        taken += [leased.id for leased in await stage.claim("work", limit=2)]
        assert len(taken) < 20


async def test_what_is_not_built_is_refused(stage: Stage) -> None:
    with pytest.raises(NotYet):
        await stage.queue("work", ordering="fair")
    assert [queue.name for queue in await stage.admin.queues()].count("work") == 0


async def test_aging_reaches_a_message_below_80_levels(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    (starved,) = await publish_all(stage, 0)
    await stage.travel(600)
    drafts = [Draft(queue="work", priority=number + 1) for number in range(80)]
    above = [each.id for each in await stage.broker.publish_many(drafts)]
    queue_id = await stage.queue_id("work")
    for _ in range(80):
        assert await stage.store.age(queue_id, 300, 1_000) == 1
    assert await stage.store.age(queue_id, 300, 1_000) == 0
    taken = [leased.id for leased in await stage.claim("work", limit=2)]
    assert taken == [starved, above[-1]]
