"""Bugs of other queues where children end and their parent waits for them: none of them is ours."""

import asyncio
import json

import pytest

from penstock.agents.scheduler import Scheduler
from penstock.errors import StoreBusy
from penstock.model.message import (
    After,
    Dedup,
    Draft,
    Flag,
    Leased,
    Nack,
    SettleReject,
    State,
    Verb,
)
from penstock.model.queue import QueueState
from penstock.model.store_types import Answer, AnswerKind, Completion, Entry
from penstock.model.waiting import HeldEnd, Hold, StepRecord, Wait, WaitPlan
from tests.conformance.stage import Stage
from tests.extent import ALL

pytestmark = pytest.mark.anyio
RACES = 10_000 if ALL else 1_000
RACE_BATCH = 100


async def make_entry(stage: Stage, **fields: object) -> Entry:
    return Entry(await stage.queue_id(), "message", b"", **fields)  # type: ignore[arg-type]


async def make_waiter(stage: Stage, *places: int, **how: object) -> Entry:
    after = After(entries=places, **how)  # type: ignore[arg-type]
    return await make_entry(stage, flags=Flag.HELD, after=after)


async def publish(stage: Stage, *entries: Entry) -> list[int]:
    return [each.id for each in await stage.store.enqueue(entries, atomic=True)]


async def look_until_idle(stage: Stage) -> int:
    resumed = 0
    while (looked := await stage.store.resume_held()).seen:
        resumed += looked.resumed
    return resumed


async def gather(stage: Stage, leased: Leased, *children: Entry, policy: str = "all") -> list[int]:
    """Lets a claimed message wait for children that are published with the wait."""
    after = After(entries=tuple(range(len(children))), policy=policy)  # type: ignore[arg-type]
    step = StepRecord(name="gather", key=str(leased.fence), kind="gather", done=False)
    asked = Wait(
        id=leased.id,
        fence=leased.fence,
        seen_flags=leased.flags,
        attempts=0,
        deliveries=0,
        reason="after",
        holds=(Hold(kind="after", after=after),),
        children=children,
        children_step=step,
    )
    assert (await stage.store.wait(asked)).kind is AnswerKind.DONE
    records = (await stage.store.steps(leased.id)).steps
    ids: list[int] = json.loads(records[-1].body)
    return ids


async def test_a_child_that_was_redelivered_counts_once(stage: Stage) -> None:
    plain = await make_entry(stage)
    *_, id = await publish(stage, plain, plain, await make_waiter(stage, 0, 1))
    await stage.broker.settle(await stage.take(), Nack("again", delay=0.0))
    await stage.broker.complete(await stage.take())
    assert await look_until_idle(stage) == 0
    await stage.broker.complete(await stage.take())
    assert await look_until_idle(stage) == 1
    assert await stage.drain() == [id]


async def test_a_child_whose_worker_stalled_counts_when_it_completed(stage: Stage) -> None:
    plain = await make_entry(stage)
    first, id = await publish(stage, plain, await make_waiter(stage, 0))
    stalled = await stage.take(lease=1.0)
    await stage.travel(2)
    await stage.sweep()
    await stage.promote()
    await stage.store.resume_held()
    assert await stage.state(id) is State.SCHEDULED
    assert await stage.drain() == [first]
    assert await look_until_idle(stage) == 1
    (late,) = await stage.store.complete([Completion(stalled.id, stalled.fence)])
    assert late.kind is AnswerKind.LOST
    assert await look_until_idle(stage) == 0


async def test_a_purged_child_does_not_leave_its_parent_waiting(stage: Stage) -> None:
    plain = await make_entry(stage)
    first, needs, settled = await publish(
        stage, plain, await make_waiter(stage, 0), await make_waiter(stage, 0, policy="settled")
    )
    assert await stage.broker.admin.purge("default", "ready") == 1
    await look_until_idle(stage)
    assert await stage.state(first) is State.CANCELLED
    assert await stage.state(needs) is State.CANCELLED
    assert await stage.state(settled) is State.READY


async def test_an_empty_group_inside_a_group_is_done_at_once(stage: Stage) -> None:
    empty = await make_waiter(stage)
    outer = await make_waiter(stage, 0)
    first, second = await publish(stage, empty, outer)
    await look_until_idle(stage)
    assert await stage.drain() == [first]
    await look_until_idle(stage)
    assert await stage.drain() == [second]


async def test_a_retry_keeps_the_id_that_its_parent_waits_for(stage: Stage) -> None:
    plain = await make_entry(stage)
    first, id = await publish(stage, plain, await make_waiter(stage, 0))
    await stage.broker.settle(await stage.take(), SettleReject("no good"))
    published = await stage.broker.admin.redrive(first)
    assert published.id == first
    assert await stage.drain() == [first]
    assert await look_until_idle(stage) == 1
    assert await stage.drain() == [id]


async def test_children_that_end_before_anyone_looks_resume_their_parent(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take()
    plain = await make_entry(stage)
    ids = await gather(stage, leased, plain, plain, plain)
    assert sorted(await stage.drain()) == sorted(ids)
    assert await look_until_idle(stage) == 1
    assert (await stage.take()).id == leased.id


async def test_nested_groups_fire_once_each_from_the_inside_out(stage: Stage) -> None:
    outer_id = await stage.publish()
    plain = await make_entry(stage)
    inner_ids = await gather(stage, await stage.take(), plain, plain)
    leaves: list[int] = []
    for _ in inner_ids:
        leaves += await gather(stage, await stage.take(), plain, plain)
    assert sorted(await stage.drain()) == sorted(leaves)
    assert await look_until_idle(stage) == 2
    assert await stage.state(outer_id) is State.SCHEDULED
    assert sorted(await stage.drain()) == sorted(inner_ids)
    assert await look_until_idle(stage) == 1
    assert await stage.drain() == [outer_id]
    assert await look_until_idle(stage) == 0


async def test_a_child_that_is_a_duplicate_resumes_its_parent(stage: Stage) -> None:
    """The edge leads to a message that was published before, and that nothing waited for."""
    draft = Draft(dedup=Dedup("x", None))
    running = (await stage.broker.publish(draft)).id
    await stage.publish()
    first = await stage.take()
    leased = await stage.take()
    child = await stage.broker.admit(draft)
    assert await gather(stage, leased, child) == [running]
    assert await look_until_idle(stage) == 0
    await stage.broker.complete(first)
    assert await look_until_idle(stage) == 1


async def test_many_children_that_end_at_once_resume_their_parent_once(stage: Stage) -> None:
    leased_id = await stage.publish()
    ids = await gather(stage, await stage.take(), *[await make_entry(stage)] * 200)
    found = await stage.claim(limit=200)
    halves = [
        [Completion(each.id, each.fence) for each in half] for half in (found[::2], found[1::2])
    ]
    await asyncio.gather(*map(stage.broker.complete_many, halves))
    resumed = [await look_until_idle(stage) for _ in range(3)]
    assert (len(ids), sum(resumed)) == (200, 1)
    assert await stage.drain() == [leased_id]


async def test_a_fan_in_waits_for_the_last_child_in_any_order(stage: Stage) -> None:
    count = 60
    waiter = await make_waiter(stage, *range(count))
    *_, waiting = await publish(stage, *[await make_entry(stage)] * count, waiter)
    first, *middle, last = await stage.claim(limit=count)
    for part in (middle, [last]):
        await stage.broker.complete_many([Completion(each.id, each.fence) for each in part])
        assert await look_until_idle(stage) == 0
    await stage.broker.complete(first)
    assert await look_until_idle(stage) == 1
    assert await stage.drain() == [waiting]


async def test_a_failed_child_ends_its_waiter_while_others_are_open(stage: Stage) -> None:
    waiters = [await make_waiter(stage, 0, 1, 2), await make_waiter(stage, 0, 1, policy="any")]
    ids = await publish(stage, *[await make_entry(stage)] * 3, *waiters)
    done, failed, _ = await stage.claim(limit=3)
    await stage.broker.complete(done)
    assert await look_until_idle(stage) == 1
    await stage.store.cancel([failed.id], force=True)
    await look_until_idle(stage)
    records = [await stage.store.get(id) for id in ids[3:]]
    assert [record and record.state for record in records] == [State.CANCELLED, State.READY]


async def repeat_busy(stage: Stage, ends: list[HeldEnd]) -> list[Answer]:
    """A batch that waits too long for the locks of another one has ended nothing."""
    while True:
        try:
            return await stage.store.end_held(ends)
        except StoreBusy:
            continue


async def test_a_decision_and_a_timeout_have_one_winner(stage: Stage) -> None:
    held = await make_entry(stage, flags=Flag.HELD, after=After(policy="decision"))
    ids = [
        id for _ in range(RACES // RACE_BATCH) for id in await publish(stage, *[held] * RACE_BATCH)
    ]

    async def end(verb: Verb, state: State, order: list[int]) -> dict[int, AnswerKind]:
        told: dict[int, AnswerKind] = {}
        for first in range(0, len(order), RACE_BATCH):
            part = order[first : first + RACE_BATCH]
            ends = [HeldEnd(id=id, verb=verb, state=state) for id in part]
            answers = await repeat_busy(stage, ends)
            told |= {id: answer.kind for id, answer in zip(part, answers, strict=True)}
        return told

    decided, expired = await asyncio.gather(
        end(Verb.DECIDE, State.COMPLETED, ids), end(Verb.EXPIRE, State.EXPIRED, ids[::-1])
    )
    winners = {(decided[id], expired[id]) for id in ids}
    done, invalid = AnswerKind.DONE, AnswerKind.INVALID
    assert winners <= {(done, invalid), (invalid, done)}


async def test_the_end_of_a_message_with_another_rank_resumes_its_waiter(stage: Stage) -> None:
    """The publish of the waiter does not find its ticket, so its end is not announced."""
    first = await stage.publish()
    await stage.broker.admin.reprioritise(first, 9)
    (waiter,) = await publish(
        stage, await make_entry(stage, flags=Flag.HELD, after=After(ids=(first,)))
    )
    await look_until_idle(stage)
    await stage.broker.complete(await stage.take())
    for _ in range(2):
        await stage.travel(61)
        await Scheduler(stage.store, stage.broker.directory, "node").tick()
    assert await stage.drain() == [waiter]
    assert await stage.store.awaited_results(waiter) == {first: b"null"}


@pytest.mark.parametrize("state", [QueueState.DRAINING, QueueState.PAUSED, QueueState.ACTIVE])
async def test_a_full_or_draining_queue_refuses_no_resume(stage: Stage, state: QueueState) -> None:
    await stage.queue("work", max_depth=2)
    id = await stage.publish(queue="work")
    leased = await stage.take("work")
    sleep = Hold(kind="moment", delay=60.0)
    await stage.broker.waits.suspend(leased, WaitPlan(reason="sleep", holds=(sleep,)))
    other = await stage.publish(queue="work")
    await stage.admin.set_state("work", state)
    await stage.travel(61)
    assert await look_until_idle(stage) == 1
    assert await stage.state(id) is State.READY
    if state is QueueState.PAUSED:
        assert await stage.claim("work") == []
        await stage.admin.set_state("work", QueueState.ACTIVE)
    assert sorted(await stage.drain("work")) == [id, other]
