"""Cancelling a message with the messages that its steps published."""

import json

import pytest
from msgspec.structs import replace

from penstock.agents.bulk_runner import BulkRunner
from penstock.errors import InvalidState
from penstock.model.message import Draft, Leased, SettleReject, State
from penstock.model.waiting import CancelledTree, Hold, StepRecord, WaitPlan
from penstock.model.workflow import NodeDraft
from penstock.rules.waiting import list_children
from penstock.worker.approvals import make_approval
from penstock.worker.step_calls import make_after
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def gather(stage: Stage, held: Leased, count: int = 2) -> list[int]:
    """Lets a message wait for children, and returns their ids."""
    after = make_after(tuple(range(count)), (), "settled", 1)
    plan = WaitPlan(
        reason=f"after:{count}",
        holds=(Hold(kind="after", after=after),),
        children=(Draft(queue="default", parent_id=held.id),) * count,
        children_step=StepRecord(name="gather", key="1", kind="gather", position=2, done=False),
    )
    await stage.broker.waits.suspend(held, plan)
    (step,) = (await stage.store.steps(held.id)).steps[-1:]
    ids: list[int] = json.loads(step.body)
    return ids


async def states(stage: Stage, *ids: int) -> list[State]:
    return [await stage.state(id) for id in ids]


async def test_the_children_of_a_cancelled_message_go_on(stage: Stage) -> None:
    await stage.publish()
    held = await stage.take()
    first, second = await gather(stage, held)
    await stage.admin.cancel(held.id)
    assert await states(stage, held.id, first, second) == [
        State.CANCELLED, State.READY, State.READY
    ]  # fmt: skip


async def test_a_tree_is_cancelled_down_to_the_children_of_children(stage: Stage) -> None:
    await stage.publish()
    top = await stage.take()
    step = StepRecord(name="enqueue", key="1", kind="enqueue", position=1)
    stored = await stage.broker.waits.save_step(
        top, step, draft=Draft(delay=60.0, parent_id=top.id)
    )
    (sent,) = list_children(stored)
    first, second = await gather(stage, top)
    (below,) = await gather(stage, await stage.take(), 1)
    other = await stage.publish()
    done = await stage.admin.cancel_tree(top.id)
    assert done == CancelledTree(State.CANCELLED, False, 4)
    tree = await states(stage, top.id, sent, first, second, below)
    assert tree == [State.CANCELLED] * 5
    assert (await stage.store.resume_held()).resumed == 0
    assert await stage.drain() == [other]


async def test_children_that_run_are_asked_to_stop_or_ended_by_force(stage: Stage) -> None:
    await stage.publish()
    top = await stage.take()
    first, second = await gather(stage, top)
    running = await stage.take()
    assert (await stage.admin.cancel_tree(top.id)).children == 2
    assert await states(stage, top.id, first, second) == [
        State.CANCELLED, State.CLAIMED, State.CANCELLED
    ]  # fmt: skip
    assert (await stage.record(running.id)).cancel_requested
    assert (await stage.admin.cancel_tree(top.id, force=True)).children == 1
    assert await stage.state(first) is State.CANCELLED


async def test_ended_and_dead_children_stay_as_they_are(stage: Stage) -> None:
    await stage.publish()
    top = await stage.take()
    ended, dead, left = await gather(stage, top, 3)
    await stage.broker.complete(await stage.take())
    await stage.broker.settle(await stage.take(), SettleReject("no"))
    assert (await stage.admin.cancel_tree(top.id)).children == 1
    assert await states(stage, ended, dead, left) == [
        State.COMPLETED, State.DEAD, State.CANCELLED
    ]  # fmt: skip
    with pytest.raises(InvalidState, match="is cancelled"):
        await stage.admin.cancel_tree(top.id)


async def test_the_children_of_an_ended_message_are_cancelled(stage: Stage) -> None:
    await stage.publish()
    top = await stage.take()
    children = await gather(stage, top)
    await stage.admin.cancel(top.id)
    done = await stage.admin.cancel_tree(top.id)
    assert done == CancelledTree(State.CANCELLED, False, 2)
    assert await states(stage, *children) == [State.CANCELLED] * 2


async def cancel_in_bulk(stage: Stage, id: int) -> None:
    action = await stage.broker.bulk.start("cancel", ids=[id])
    runner = BulkRunner(stage.store, stage.broker.directory, "test")
    for _ in range(20):
        await runner.tick()
        runner.due.clear()
    assert (await stage.broker.bulk.get(action.id)).counts.done == 1


@pytest.mark.parametrize("how", ["alone", "tree", "bulk", "workflow"])
async def test_human_steps_end_at_once_with_the_message_that_asked(stage: Stage, how: str) -> None:
    flow = await stage.broker.workflows.start("ship", [NodeDraft(draft=Draft())])
    held = await stage.take()
    step = StepRecord(name="approve", key="1", kind="gather", position=1, done=False)
    draft = replace(make_approval({"title": "Ship it?"}, None, "", {}).draft, parent_id=held.id)
    plan = WaitPlan(
        reason="after:1",
        holds=(Hold(kind="after", after=make_after((0,), (), "settled", 1)),),
        children=(draft,),
        children_step=step,
    )
    await stage.broker.waits.suspend(held, plan)
    (stored,) = (await stage.store.steps(held.id)).steps
    (human,) = list_children(stored)
    match how:
        case "tree":
            await stage.admin.cancel_tree(held.id)
        case "bulk":
            await cancel_in_bulk(stage, held.id)
        case "workflow":
            await stage.broker.workflows.cancel(flow.id)
        case _:
            await stage.admin.cancel(held.id)
    record = await stage.record(human)
    assert (record.state, record.reason) == (State.CANCELLED, "requester_ended")


async def test_a_message_of_others_that_a_step_names_stays(stage: Stage) -> None:
    await stage.publish(priority=1)
    other = await stage.publish()
    top = await stage.take()
    made_up = StepRecord(name="enqueue", key="1", kind="enqueue", body=str(other).encode())
    await stage.broker.waits.save_step(top, made_up)
    assert (await stage.admin.cancel_tree(top.id, force=True)).children == 0
    assert await stage.state(other) is State.READY
