"""The acceptance cases of Relay that need no HTTP, each under its own words (acceptance.md)."""

from collections import Counter

import anyio
import pytest

from penstock.model.message import Draft, Leased, Nack, State, Verb
from penstock.model.store_types import AnswerKind, Completion, Cursor, Lock
from tests.conformance.stage import LEASE_OVER, Stage, micros, refusal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def relay(stage: Stage) -> Stage:
    await stage.queue("work", "relay")
    return stage


async def publish(stage: Stage, count: int = 1) -> list[int]:
    return await stage.publish_each(count, queue="work")


async def claim(stage: Stage, consumer: str, limit: int = 1) -> list[Leased]:
    return (await stage.broker.claim("work", consumer=consumer, limit=limit)).messages


async def lose(stage: Stage) -> None:
    """Whoever holds a message is too late, and the sweep has seen it."""
    await stage.travel(LEASE_OVER)
    await stage.sweep()


async def test_of_priorities_0_to_9_the_9_is_first_and_each_is_fifo_inside(relay: Stage) -> None:
    ids = {
        (-priority, turn): await relay.publish(queue="work", priority=priority)
        for turn in (1, 2)
        for priority in range(10)
    }
    assert await relay.drain("work") == [ids[place] for place in sorted(ids)]


@pytest.mark.parametrize("priority", [-1, 10])
async def test_a_priority_outside_0_to_9_is_refused(relay: Stage, priority: int) -> None:
    assert await refusal(relay.publish(queue="work", priority=priority)) == "INVALID_INPUT"
    assert await relay.places("work") == {}


async def test_a_type_filter_gets_only_that_type_and_leaves_the_others(relay: Stage) -> None:
    mail = [await relay.publish(queue="work", type=type) for type in ("mail", "sms", "mail")][::2]
    taken = await relay.broker.claim(("work", ["mail"]), consumer="a", limit=9)
    assert [leased.id for leased in taken.messages] == mail
    assert await relay.places("work") == {"ready": 1, "lease": 2}


async def test_an_empty_queue_is_waited_for_and_then_gives_an_empty_list(relay: Stage) -> None:
    assert await relay.claim("work", wait=0.01) == []


async def test_a_message_enqueued_meanwhile_ends_the_wait(relay: Stage) -> None:
    other = await relay.another()
    taken: list[Leased] = []

    async def wait() -> None:
        taken.extend(await relay.claim("work", wait=30))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            (id,) = await publish(other)
    assert [leased.id for leased in taken] == [id]


async def test_a_batch_of_5_with_3_queued_is_3_messages_under_3_locks(relay: Stage) -> None:
    ids = await publish(relay, 3)
    taken = await relay.claim("work", limit=5)
    assert [leased.id for leased in taken] == ids
    assert len({(leased.id, leased.fence) for leased in taken}) == 3


async def test_a_stolen_lock_acks_nothing_and_the_thief_acks(relay: Stage) -> None:
    (id,) = await publish(relay)
    (a,) = await claim(relay, "a")
    await lose(relay)
    (b,) = await claim(relay, "b")
    assert await refusal(relay.broker.complete(a)) == "LOCK_LOST"
    assert await relay.state(id) is State.CLAIMED
    await relay.broker.complete(b)
    assert await relay.state(id) is State.COMPLETED


async def test_a_touch_moves_the_end_of_the_lock_and_the_sweep_leaves_it(relay: Stage) -> None:
    (id,) = await publish(relay)
    leased = await relay.take("work")
    await relay.travel(20)
    touched = await relay.broker.extend(leased, 30)
    assert touched.lease_until == leased.lease_until + micros(20)
    await relay.travel(20)
    assert await relay.sweep() == []
    assert await relay.state(id) is State.CLAIMED


async def test_a_touch_with_a_wrong_token_or_without_a_lock_is_refused(relay: Stage) -> None:
    await publish(relay, 2)
    leased = await relay.take("work")
    wrong = Lock(leased.id, leased.fence + 1)
    assert await refusal(relay.broker.extend(wrong, 30)) == "LOCK_LOST"
    free = Lock(leased.id + 1, leased.fence)
    assert await refusal(relay.broker.extend(free, 30)) == "INVALID_STATE"


async def test_nacked_thrice_is_queued_queued_dead(relay: Stage) -> None:
    await publish(relay)
    nacks = [await relay.broker.settle(await relay.take("work"), Nack("no")) for _ in range(3)]
    assert [answer.state for answer in nacks] == [State.READY, State.READY, State.DEAD]


async def test_a_swept_message_is_queued_with_its_payload_and_no_lock(relay: Stage) -> None:
    id = await relay.publish(b"payload", queue="work")
    await relay.take("work")
    await lose(relay)
    record = await relay.record(id)
    assert (record.state, record.lease_until, record.consumer) == (State.READY, None, None)
    assert (await relay.take("work")).body == b"payload"


async def test_a_message_swept_at_max_attempts_is_dead(relay: Stage) -> None:
    (id,) = await publish(relay)
    for _ in range(3):
        await relay.take("work")
        await lose(relay)
    assert await relay.counters(id) == (State.DEAD, 3, 3)


async def test_a_batch_of_acks_says_which_succeeded_and_why_others_failed(relay: Stage) -> None:
    good, wrong = await publish(relay, 2)
    fence = (await relay.claim("work", limit=2))[0].fence
    items = [Completion(good, fence), Completion(wrong, fence + 1), Completion(9_999, fence)]
    answers = await relay.broker.complete_many(items)
    kinds = [AnswerKind.DONE, AnswerKind.LOST, AnswerKind.MISSING]
    assert [answer.kind for answer in answers] == kinds
    assert await relay.places("work") == {"ended": 1, "lease": 1}


async def test_a_batch_of_nacks_says_which_are_queued_and_which_are_dead(relay: Stage) -> None:
    await relay.publish(queue="work", max_attempts=1)
    await publish(relay)
    held = await relay.claim("work", limit=2)
    answers = await relay.broker.settle_many([(leased, Nack("no")) for leased in held])
    assert [answer.state for answer in answers] == [State.DEAD, State.READY]


async def test_the_history_of_a_life_is_in_order_with_times_and_consumers(relay: Stage) -> None:
    (id,) = await publish(relay)
    await claim(relay, "lost")
    await lose(relay)
    (leased,) = await claim(relay, "nacks")
    await relay.travel(1)
    await relay.broker.settle(leased, Nack())
    (leased,) = await claim(relay, "acks")
    await relay.travel(1)
    await relay.broker.complete(leased)
    rows = (await relay.record(id)).timeline
    assert [(row.verb, row.consumer) for row in rows] == [
        (Verb.RECLAIM, "lost"),
        (Verb.NACK, "nacks"),
        (Verb.COMPLETE, "acks"),
    ]
    times = [time for row in rows for time in (row.claimed_at, row.at)]
    assert times == sorted(times, key=lambda time: time or 0)


async def test_the_stats_of_two_consumers_are_what_they_did(relay: Stage) -> None:
    await publish(relay, 7)
    for consumer, acks in (("a", 3), ("b", 1)):
        held = await claim(relay, consumer, limit=acks + 1)
        await relay.broker.complete_many([Completion(each.id, each.fence) for each in held[:acks]])
        await relay.broker.settle(held[-1], Nack(delay=60))
    rows = await relay.store.recent(0, 100)
    assert Counter((row.consumer, row.verb) for row in rows) == {
        ("a", Verb.COMPLETE): 3,
        ("a", Verb.NACK): 1,
        ("b", Verb.COMPLETE): 1,
        ("b", Verb.NACK): 1,
    }


async def test_the_counts_of_a_snapshot_are_those_of_each_status(relay: Stage) -> None:
    await relay.dead("work")
    await relay.completed("work")
    await publish(relay, 3)
    await relay.take("work")
    queue = await relay.queue_id("work")
    found = {state: len(await relay.admin.find("work", state=state)) for state in State}
    assert await relay.store.depths(100) == {
        (queue, "ready"): found[State.READY],
        (queue, "lease"): found[State.CLAIMED],
        (queue, "dead"): found[State.DEAD],
        (queue, "completed"): found[State.COMPLETED],
    }


async def test_a_dead_message_moved_to_main_is_claimable(relay: Stage) -> None:
    id = await relay.dead("work")
    await relay.admin.redrive(id)
    assert await relay.drain("work") == [id]


async def test_an_edited_payload_is_what_the_worker_gets(relay: Stage) -> None:
    id = await relay.dead("work", body=b"wrong")
    await relay.admin.redrive(id, body=b"right")
    assert [leased.body for leased in await relay.claim("work", limit=2)] == [b"right"]


async def test_a_queue_that_is_not_empty_is_deleted_only_by_force(relay: Stage) -> None:
    await publish(relay)
    assert await refusal(relay.admin.delete_queue("work")) == "INVALID_STATE"
    await relay.admin.delete_queue("work", force=True)
    assert await refusal(relay.admin.queue("work")) == "NOT_FOUND"


async def test_a_rename_onto_an_existing_name_is_refused(relay: Stage) -> None:
    await relay.queue("other")
    assert await refusal(relay.admin.rename_queue("work", "other")) == "SLUG_CONFLICT"
    assert {queue.name for queue in await relay.admin.queues()} >= {"work", "other"}


async def test_an_export_imported_into_an_empty_queue_has_the_same_bodies(relay: Stage) -> None:
    await relay.queue("copy", "relay")
    bodies = [b"%d" % number for number in range(5)]
    await relay.broker.publish_many([Draft(queue="work", body=body) for body in bodies])
    feed = await relay.store.feed(Cursor(), 100)
    drafts = [Draft(queue="copy", body=message.body) for message in feed.messages]
    await relay.broker.publish_many(drafts)
    assert [leased.body for leased in await relay.claim("copy", limit=9)] == bodies
