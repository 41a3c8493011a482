"""Workflows of more than 1,000 nodes: published in pieces, and held until the last of them."""

import pytest
from msgspec.structs import replace

from penstock.agents.workflow_follower import WorkflowFollower
from penstock.broker.waiting.workflow_build import PIECE, WorkflowBuilder
from penstock.broker.waiting.workflow_start import make_change
from penstock.errors import Conflict, InvalidState
from penstock.model.message import Draft, Leased, State
from penstock.model.store_types import Completion
from penstock.model.workflow import NodeDraft, WorkflowState
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio
ROOTS = PIECE + 50


def make_graph(queue: str = "default") -> list[NodeDraft]:
    """Returns a node that waits for nodes of both pieces, and those after it."""
    first = NodeDraft(draft=Draft(queue=queue, body=b"last"), after=(1, ROOTS))
    return [first, *(NodeDraft(draft=Draft(queue=queue, body=b"root")) for _ in range(ROOTS))]


async def look_at_all(stage: Stage) -> None:
    while (await stage.store.look()).more:
        pass


async def claim_all(stage: Stage) -> list[Leased]:
    found: list[Leased] = []
    while taken := await stage.claim(limit=500):
        found += taken
    return found


async def build_partly(stage: Stage, key: str | None = None) -> WorkflowBuilder:
    """Starts a workflow and stops after its first piece."""
    prepared = await stage.broker.workflows.prepare("large", make_graph(), key=key)
    builder = WorkflowBuilder(stage.broker.workflows, prepared)
    flow = replace(prepared.flow, state=WorkflowState.BUILDING)
    gate = await builder.make_gate()
    change = make_change(replace(prepared, flow=flow, entries=(gate,)))
    changed = await stage.store.advance(change)
    assert changed is not None
    builder.gate = changed.published[0].id
    await builder.publish_piece(range(1, PIECE + 1))
    return builder


async def follow(stage: Stage) -> None:
    follower = WorkflowFollower(stage.store, stage.broker.directory, "test")
    for _ in range(3):
        await stage.travel(11)
        await follower.tick()
        await look_at_all(stage)


async def test_all_nodes_run_after_the_last_piece(stage: Stage) -> None:
    started = await stage.broker.workflows.start("large", make_graph())
    await look_at_all(stage)
    roots = await claim_all(stage)
    assert [each.body for each in roots] == [b"root"] * ROOTS
    assert sorted(each.id for each in roots) == sorted(started.ids[1:])
    assert await stage.broker.waits.read_parents(roots[0]) == []
    for first in range(0, ROOTS, 500):
        part = roots[first : first + 500]
        await stage.broker.complete_many([Completion(each.id, each.fence) for each in part])
    await look_at_all(stage)
    (last,) = await claim_all(stage)
    assert (last.id, last.body) == (started.ids[0], b"last")
    await stage.broker.complete(last)
    await follow(stage)
    view = await stage.broker.workflows.get(started.id)
    assert view.workflow.state is WorkflowState.COMPLETED


async def test_no_node_runs_before_the_last_piece(stage: Stage) -> None:
    await build_partly(stage)
    await look_at_all(stage)
    assert await stage.claim(limit=10) == []


async def test_a_start_that_stopped_is_cancelled_after_an_hour(stage: Stage) -> None:
    builder = await build_partly(stage)
    await follow(stage)
    (flow,) = await stage.broker.workflows.list_workflows()
    assert flow.state is WorkflowState.BUILDING
    await stage.travel(3_600)
    await follow(stage)
    (flow,) = await stage.broker.workflows.list_workflows()
    assert flow.state is WorkflowState.CANCELLED
    for id in (builder.gate, *list(builder.ids.values())[::200]):
        assert await stage.state(id) is State.CANCELLED
    assert await stage.claim(limit=10) == []


async def test_a_workflow_that_is_being_published_is_cancelled_or_left_alone(stage: Stage) -> None:
    builder = await build_partly(stage, key="k")
    workflows = stage.broker.workflows
    with pytest.raises(Conflict, match="is being published"):
        await workflows.start("large", make_graph(), key="k")
    with pytest.raises(InvalidState, match="is being published"):
        await workflows.redrive(builder.flow.id)
    assert await workflows.cancel(builder.flow.id) == PIECE + 1
    with pytest.raises(Conflict, match="was cancelled"):
        await builder.publish(builder.gate)
    await follow(stage)
    assert (await workflows.get(builder.flow.id)).workflow.state is WorkflowState.CANCELLED


async def test_a_piece_that_is_refused_leaves_nothing_to_run(stage: Stage) -> None:
    await stage.queue("work", max_depth=PIECE + 10)
    with pytest.raises(InvalidState, match="QUEUE_FULL"):
        await stage.broker.workflows.start("large", make_graph("work"))
    await look_at_all(stage)
    found = await stage.admin.find("work", state=State.SCHEDULED)
    assert (found, await stage.claim("work")) == ([], [])
    assert await stage.broker.workflows.list_workflows() == []
