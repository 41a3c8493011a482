"""The acceptance cases of codeQ that need no HTTP, each under its own words (acceptance.md)."""

import anyio
import pytest

from penstock.model.message import Dedup, Draft, Fail, Leased, Nack, Release, State
from penstock.model.store_types import Lock
from tests.conformance.stage import Stage, micros, refusal

pytestmark = pytest.mark.anyio
# What codeq's backoff may wait at most.
LONGEST = 900


@pytest.fixture
async def codeq(stage: Stage) -> Stage:
    await stage.queue("tasks", "codeq")
    return stage


async def claim(stage: Stage, *types: str, limit: int = 1) -> list[Leased]:
    taken = await stage.broker.claim(("tasks", list(types)), consumer="worker", limit=limit)
    return taken.messages


async def test_a_task_that_is_enqueued_is_ready(codeq: Stage) -> None:
    id = await codeq.publish(b"{}", queue="tasks", type="resize")
    assert await codeq.state(id) is State.READY


async def test_without_work_a_claim_is_empty_and_a_wait_ends_with_an_enqueue(codeq: Stage) -> None:
    assert await claim(codeq, "resize") == []
    taken: list[Leased] = []

    async def wait() -> None:
        found = await codeq.broker.claim(("tasks", ["resize"]), consumer="worker", wait=30)
        taken.extend(found.messages)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            id = await (await codeq.another()).publish(queue="tasks", type="resize")
    assert [leased.id for leased in taken] == [id]


async def test_only_the_types_that_are_asked_for_are_served(codeq: Stage) -> None:
    ids = {
        name: await codeq.publish(queue="tasks", type=name) for name in ("resize", "mail", "scan")
    }
    assert [leased.id for leased in await claim(codeq, "mail", limit=9)] == [ids["mail"]]
    found = await claim(codeq, "resize", "scan", limit=9)
    assert [leased.id for leased in found] == [ids["resize"], ids["scan"]]


async def test_of_one_type_priority_9_is_before_2_and_each_is_fifo_inside(codeq: Stage) -> None:
    ids = [
        await codeq.publish(queue="tasks", type="resize", priority=priority)
        for priority in (2, 9, 2, 9)
    ]
    found = await claim(codeq, "resize", limit=4)
    assert [leased.id for leased in found] == [ids[1], ids[3], ids[0], ids[2]]


async def test_a_priority_of_42_is_clamped_to_9(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks", priority=42)
    assert (await codeq.record(id)).message.priority == 9


async def test_a_lease_of_1_s_that_ran_out_comes_back_delayed_by_backoff(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks")
    await codeq.take("tasks", lease=1.0)
    await codeq.travel(2)
    await codeq.sweep()
    record = await codeq.record(id)
    assert (record.state, record.reason) == (State.SCHEDULED, "LEASE_EXPIRED")
    assert record.due_at is not None
    await codeq.travel(LONGEST)
    assert await codeq.promote() == 1
    assert (await codeq.take("tasks")).id == id


async def test_a_heartbeat_lengthens_the_lease_and_anothers_does_not(codeq: Stage) -> None:
    await codeq.publish(queue="tasks")
    leased = await codeq.take("tasks", lease=10.0)
    await codeq.travel(5)
    answer = await codeq.broker.extend(leased, 10)
    assert answer.lease_until == leased.lease_until + micros(5)
    another = Lock(leased.id, leased.fence + 1)
    assert await refusal(codeq.broker.extend(another, 10)) == "LOCK_LOST"


async def test_an_abandoned_task_is_claimable_at_once_and_used_no_attempt(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks")
    await codeq.broker.settle(await codeq.take("tasks"), Release())
    assert await codeq.counters(id) == (State.READY, 0, 0)
    assert (await codeq.take("tasks")).id == id


async def test_a_nack_may_wait_900_seconds_and_no_longer(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks")
    leased = await codeq.take("tasks")
    await codeq.broker.settle(leased, Nack("no", delay=5_000))
    record = await codeq.record(id)
    assert record.due_at is not None
    assert record.due_at - await codeq.store.now() == micros(LONGEST)


async def test_5_attempts_under_steady_nack_are_exactly_5_runs_then_dead(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks")
    runs = 0
    while taken := await codeq.claim("tasks"):
        runs += 1
        await codeq.broker.settle(taken[0], Nack("no"))
        await codeq.travel(LONGEST + 1)
        await codeq.promote()
    assert runs == 5
    record = await codeq.record(id)
    assert (record.state, record.reason) == (State.DEAD, "retries_exhausted")


async def test_a_failed_result_is_final_and_not_among_the_dead(codeq: Stage) -> None:
    id = await codeq.publish(queue="tasks")
    await codeq.broker.settle(await codeq.take("tasks"), Fail("no such image"))
    assert await codeq.state(id) is State.FAILED
    assert await codeq.places("tasks") == {"ended": 1}


async def test_a_second_result_is_told_the_first_and_an_unknown_task_is_missing(
    codeq: Stage,
) -> None:
    await codeq.publish(queue="tasks")
    leased = await codeq.take("tasks")
    await codeq.broker.complete(leased, b"1")
    assert await refusal(codeq.broker.settle(leased, Fail("no"))) == "LOCK_LOST"
    assert await codeq.store.result(leased.id) == b"1"
    assert await refusal(codeq.broker.complete(Lock(9_999, leased.fence))) == "NOT_FOUND"


async def test_an_idempotency_key_that_is_used_again_names_the_same_task(codeq: Stage) -> None:
    draft = Draft(queue="tasks", body=b"{}", dedup=Dedup("order-1"))
    first, again = [await codeq.broker.publish(draft) for _ in range(2)]
    assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
