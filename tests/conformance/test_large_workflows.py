"""Workflows of more nodes than a piece: published in pieces, and held until the last of them."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from penstock.agents.workflow_follower import WorkflowFollower
from penstock.broker.waiting import workflow_build, workflow_redrive, workflow_start
from penstock.broker.waiting.workflow_build import WorkflowBuilder
from penstock.broker.waiting.workflow_start import make_change
from penstock.errors import Conflict, InvalidState
from penstock.model.message import Draft, Fail, Leased, State
from penstock.model.store_types import Completion
from penstock.model.workflow import NodeDraft, WorkflowStart, WorkflowState
from tests.conformance.stage import Stage
from tests.extent import ALL

pytestmark = pytest.mark.anyio
PIECE_SIZE = workflow_build.PIECE_SIZE if ALL else 100
ROOTS = PIECE_SIZE + 50


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (workflow_build, workflow_redrive, workflow_start):
        monkeypatch.setattr(module, "PIECE_SIZE", PIECE_SIZE)


def make_graph(queue: str = "default") -> list[NodeDraft]:
    """Returns a node that waits for nodes of both pieces, and those after it."""
    first = NodeDraft(draft=Draft(queue=queue, body=b"last"), after=(1, ROOTS))
    return [first, *(NodeDraft(draft=Draft(queue=queue, body=b"root")) for _ in range(ROOTS))]


async def look_at_all(stage: Stage) -> None:
    while (await stage.store.resume_held()).more:
        pass


async def claim_all(stage: Stage) -> list[Leased]:
    found: list[Leased] = []
    while taken := await stage.claim(limit=500):
        found += taken
    return found


async def build_partly(stage: Stage, key: str | None = None) -> WorkflowBuilder:
    """Starts a workflow and stops after its first piece."""
    prepared = await stage.broker.workflows.prepare("large", make_graph(), key=key)
    entries = dict(enumerate(prepared.entries))
    builder = WorkflowBuilder(stage.broker.workflows, prepared.flow, entries)
    flow = replace(prepared.flow, state=WorkflowState.BUILDING)
    gate = await builder.make_gate()
    change = make_change(replace(prepared, flow=flow, entries=(gate,)))
    changed = await stage.store.advance(change)
    assert changed is not None
    builder.gate = changed.published[0].id
    await builder.publish_piece(range(1, PIECE_SIZE + 1))
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


async def fail_all(stage: Stage, roots: list[Leased]) -> None:
    for first in range(0, len(roots), 500):
        await stage.broker.settle_many([(each, Fail("no")) for each in roots[first : first + 500]])
    await look_at_all(stage)


async def start_and_fail(stage: Stage) -> WorkflowStart:
    """Completes the first and the final node, and lets those that wait for them fail."""
    root = NodeDraft(draft=Draft(body=b"root"))
    part = NodeDraft(draft=Draft(body=b"part"), after=(0,))
    either = replace(part, after=(0, ROOTS + 2), policy="any")
    last = NodeDraft(draft=Draft(body=b"last"), after=(0, ROOTS), policy="any", need=2)
    nodes = [root, part, *[either] * (ROOTS - 1), last, root]
    started = await stage.broker.workflows.start("large", nodes)
    await look_at_all(stage)
    for leased in await stage.claim(limit=2):
        await stage.broker.complete(leased, b"1")
    await look_at_all(stage)
    await fail_all(stage, await claim_all(stage))
    await follow(stage)
    return started


async def test_a_large_redrive_is_published_in_pieces(stage: Stage) -> None:
    started = await start_and_fail(stage)
    assert await stage.broker.workflows.redrive(started.id) == ROOTS + 1
    await look_at_all(stage)
    parts = await claim_all(stage)
    assert [each.body for each in parts] == [b"part"] * ROOTS
    (parent,) = await stage.broker.waits.read_parents(parts[0])
    assert (parent.id, parent.result) == (started.ids[0], b"1")
    for part in parts:
        await stage.broker.complete(part)
    await look_at_all(stage)
    last = await stage.take()
    parents = await stage.broker.waits.read_parents(last)
    assert [each.id for each in parents] == [started.ids[0], parts[-1].id]
    await stage.broker.complete(last)
    await follow(stage)
    view = await stage.broker.workflows.get(started.id)
    assert (view.workflow.state, view.workflow.generation) == (WorkflowState.COMPLETED, 2)


class StoppedBuilder(WorkflowBuilder):
    """A builder whose process ends after its first piece."""

    async def publish_piece(self, places: Sequence[int]) -> None:
        if self.ids:
            raise KeyboardInterrupt
        await super().publish_piece(places)


async def test_a_large_redrive_that_stopped_is_cancelled_and_repeated(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = await start_and_fail(stage)
    await stage.travel(7_200)
    workflows = stage.broker.workflows
    with monkeypatch.context() as patch:
        patch.setattr(workflow_redrive, "WorkflowBuilder", StoppedBuilder)
        with pytest.raises(KeyboardInterrupt):
            await workflows.redrive(started.id)
    await follow(stage)
    assert await stage.claim() == []
    assert (await workflows.get(started.id)).workflow.state is WorkflowState.BUILDING
    await stage.travel(3_600)
    await follow(stage)
    assert (await workflows.get(started.id)).workflow.state is WorkflowState.CANCELLED
    assert await stage.claim() == []
    assert await workflows.redrive(started.id) == ROOTS + 1
    await look_at_all(stage)
    assert len(await claim_all(stage)) == ROOTS


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
    for id in (builder.gate, *list(builder.ids.values())[:: PIECE_SIZE // 5]):
        assert await stage.state(id) is State.CANCELLED
    assert await stage.claim(limit=10) == []


async def test_a_workflow_that_is_being_published_is_cancelled_or_left_alone(stage: Stage) -> None:
    builder = await build_partly(stage, key="k")
    workflows = stage.broker.workflows
    with pytest.raises(Conflict, match="is being published"):
        await workflows.start("large", make_graph(), key="k")
    with pytest.raises(InvalidState, match="is being published"):
        await workflows.redrive(builder.flow.id)
    assert await workflows.cancel(builder.flow.id) == PIECE_SIZE + 1
    with pytest.raises(Conflict, match="was cancelled"):
        await builder.publish(builder.gate)
    await follow(stage)
    assert (await workflows.get(builder.flow.id)).workflow.state is WorkflowState.CANCELLED


async def test_a_piece_that_is_refused_leaves_nothing_to_run(stage: Stage) -> None:
    await stage.queue("work", max_depth=PIECE_SIZE + 10)
    with pytest.raises(InvalidState, match="QUEUE_FULL"):
        await stage.broker.workflows.start("large", make_graph("work"))
    await look_at_all(stage)
    found = await stage.admin.find("work", state=State.SCHEDULED)
    assert (found, await stage.claim("work")) == ([], [])
    assert await stage.broker.workflows.list_workflows() == []
