"""Workflows: messages that wait for each other, on every store."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from penstock.agents.workflow_follower import WorkflowFollower
from penstock.broker.waiting.workflow_start import UNKNOWN
from penstock.broker.waiting.workflows import Workflows
from penstock.errors import IdempotencyConflict, InvalidInput, InvalidState, NotFound
from penstock.model.message import Draft, Fail, SettleReject, State
from penstock.model.store_types import Answer
from penstock.model.waiting import Hold, WaitPlan
from penstock.model.workflow import NodeDraft, Workflow, WorkflowStart, WorkflowState, with_ids
from tests.conformance.stage import DAY, Stage

pytestmark = pytest.mark.anyio


def node(body: bytes, *after: int, **how: object) -> NodeDraft:
    return NodeDraft(draft=Draft(body=body), after=after, **how)  # type: ignore[arg-type]


DIAMOND = (node(b"a"), node(b"b", 0), node(b"c", 0), node(b"d", 1, 2))


def flows(stage: Stage) -> Workflows:
    return stage.broker.workflows


async def start(stage: Stage, *nodes: NodeDraft, **how: object) -> WorkflowStart:
    return await flows(stage).start("nightly", nodes, **how)  # type: ignore[arg-type]


async def run_next(stage: Stage, *settlements: Fail | SettleReject) -> list[bytes]:
    """Claims what is ready and completes it, or settles it as given."""
    await stage.store.resume_held()
    bodies = []
    for leased in await stage.claim(limit=100):
        bodies.append(leased.body)
        if settlements:
            await stage.broker.settle(leased, settlements[0])
        else:
            await stage.broker.complete(leased, leased.body)
    await stage.store.resume_held()
    return sorted(bodies)


async def follow(stage: Stage, id: str) -> WorkflowState:
    follower = WorkflowFollower(stage.store, stage.broker.directory, "test")
    await stage.travel(1.1)
    await follower.tick()
    (found,) = [each for each in await flows(stage).list_workflows() if each.id == id]
    return found.state


async def test_nodes_run_when_what_they_wait_for_has_completed(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    assert await follow(stage, started.id) is WorkflowState.RUNNING
    assert await run_next(stage) == [b"a"]
    assert await run_next(stage) == [b"b", b"c"]
    assert await run_next(stage) == [b"d"]
    assert await follow(stage, started.id) is WorkflowState.COMPLETED
    shown = await flows(stage).get(started.id)
    assert shown.workflow.counts == {"completed": 4}
    assert shown.states == (State.COMPLETED,) * 4


async def test_an_empty_or_impossible_graph_publishes_nothing(stage: Stage) -> None:
    for nodes in ((), (node(b"a", 1), node(b"b", 0))):
        with pytest.raises(InvalidInput):
            await start(stage, *nodes)
    with pytest.raises(NotFound, match="no queue named 'nowhere'"):
        await start(stage, node(b"a"), NodeDraft(draft=Draft(queue="nowhere")))
    assert await stage.claim() == []
    assert await flows(stage).list_workflows() == []


async def test_a_key_starts_a_workflow_once(stage: Stage) -> None:
    first = await start(stage, *DIAMOND, key="day-1")
    again = await start(stage, *DIAMOND, key="day-1")
    assert again == replace(first, duplicate=True)
    with pytest.raises(IdempotencyConflict, match="another graph"):
        await start(stage, node(b"x"), key="day-1")
    assert await run_next(stage) == [b"a"]


async def test_a_failed_node_cancels_what_needs_it_and_is_redriven(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    await run_next(stage)
    await stage.store.resume_held()
    first, second = await stage.claim(limit=2)
    await stage.broker.settle(first, Fail("no"))
    await stage.broker.complete(second)
    assert await run_next(stage) == []
    assert await follow(stage, started.id) is WorkflowState.FAILED
    assert await flows(stage).redrive(started.id) == 2
    assert await run_next(stage) == [first.body]
    assert await run_next(stage) == [b"d"]
    assert await follow(stage, started.id) is WorkflowState.COMPLETED
    shown = (await flows(stage).get(started.id)).workflow
    assert (shown.generation, shown.counts) == (2, {"completed": 4})


async def test_a_dead_node_blocks_until_it_is_redriven(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    assert await run_next(stage, SettleReject("no")) == [b"a"]
    assert await follow(stage, started.id) is WorkflowState.BLOCKED
    assert await flows(stage).redrive(started.id) == 1
    with pytest.raises(InvalidState, match="is running"):
        await flows(stage).redrive(started.id)
    for expected in ([b"a"], [b"b", b"c"], [b"d"]):
        assert await run_next(stage) == expected
    assert await follow(stage, started.id) is WorkflowState.COMPLETED


async def test_policies_decide_what_a_node_waits_for(stage: Stage) -> None:
    parents = [node(b"1"), node(b"2")]
    await start(stage, *parents, node(b"any", 0, 1, policy="any"), node(b"end", 0, 1,
                policy="settled"))  # fmt: skip
    await stage.store.resume_held()
    first, second = await stage.claim(limit=2)
    await stage.broker.complete(first)
    assert await run_next(stage) == [b"any"]
    await stage.broker.settle(second, Fail("no"))
    assert await run_next(stage) == [b"end"]


async def settle_two(
    stage: Stage, first: Fail | SettleReject, second: Fail | SettleReject | None
) -> None:
    """Settles two nodes that run beside each other."""
    await stage.store.resume_held()
    one, two = await stage.claim(limit=2)
    await stage.broker.settle(one, first)
    await (stage.broker.settle(two, second) if second else stage.broker.complete(two, two.body))
    await stage.store.resume_held()


async def test_a_redrive_runs_each_node_once(stage: Stage) -> None:
    last = node(b"c", 0, 1, policy="settled")
    started = await start(stage, node(b"a"), node(b"b"), last, node(b"d", 2))
    await settle_two(stage, Fail("no"), SettleReject("no"))
    assert await follow(stage, started.id) is WorkflowState.BLOCKED
    assert await flows(stage).redrive(started.id) == 4
    assert await run_next(stage) == [b"a", b"b"]
    assert await run_next(stage) == [b"c"]
    assert await run_next(stage) == [b"d"]
    assert await follow(stage, started.id) is WorkflowState.COMPLETED
    assert await stage.state(started.ids[2]) is State.CANCELLED


async def test_a_dead_node_behind_a_failed_one_is_replaced(stage: Stage) -> None:
    started = await start(stage, node(b"a"), node(b"b", 0, policy="settled"))
    await run_next(stage, Fail("no"))
    assert await run_next(stage, SettleReject("no")) == [b"b"]
    assert await flows(stage).redrive(started.id) == 2
    assert await stage.state(started.ids[1]) is State.CANCELLED
    assert await run_next(stage) == [b"a"]
    assert await run_next(stage) == [b"b"]


async def test_a_node_in_the_middle_of_its_run_is_not_repeated(stage: Stage) -> None:
    last = node(b"c", 0, 1, policy="settled", on_dead="settle")
    started = await start(stage, node(b"a"), node(b"b"), last)
    await settle_two(stage, SettleReject("no"), Fail("no"))
    waiting = await stage.take()
    sleep = Hold(kind="moment", delay=3_600.0)
    await stage.broker.waits.suspend(waiting, WaitPlan(reason="sleep", holds=(sleep,)))
    await stage.store.resume_held()
    with pytest.raises(InvalidState, match="is running"):
        await flows(stage).redrive(started.id)
    await stage.travel(3_601)
    assert await run_next(stage) == [b"c"]
    assert await flows(stage).redrive(started.id) == 2
    assert await run_next(stage) == [b"a", b"b"]


async def test_a_repeated_node_waits_for_the_next_run_of_a_dead_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = await start(stage, node(b"a"), node(b"b", 0, on_dead="settle"))
    await run_next(stage, SettleReject("no"))
    assert await stage.state(started.ids[1]) is State.CANCELLED
    redrive = stage.store.redrive

    async def redrive_late(ids: Sequence[int]) -> list[Answer]:
        """Another process looks at held messages meanwhile."""
        await stage.store.resume_held()
        return await redrive(ids)

    monkeypatch.setattr(stage.store, "redrive", redrive_late)
    assert await flows(stage).redrive(started.id) == 2
    assert await run_next(stage) == [b"a"]
    assert await run_next(stage) == [b"b"]


async def test_a_node_whose_parent_was_removed_is_not_repeated(stage: Stage) -> None:
    started = await start(stage, node(b"a"), node(b"b", 0))
    await run_next(stage)
    await stage.travel(100)
    await run_next(stage, Fail("no"))
    assert await stage.prune(50) == 1
    with pytest.raises(InvalidState, match=f"message {started.ids[0]} .* start the workflow again"):
        await flows(stage).redrive(started.id)
    assert (await flows(stage).get(started.id)).workflow.state is WorkflowState.FAILED


async def test_results_stay_in_the_order_of_the_nodes_after_a_redrive(stage: Stage) -> None:
    started = await start(stage, node(b"a"), node(b"b"), node(b"c", 0, 1))
    await settle_two(stage, Fail("no"), None)
    await flows(stage).redrive(started.id)
    assert await run_next(stage) == [b"a"]
    last = await stage.take()
    parents = await stage.broker.waits.read_parents(last)
    assert [each.result for each in parents] == [b"a", b"b"]
    flow, version = await flows(stage).load(started.id, "default")
    await flows(stage).save(with_ids(flow, [UNKNOWN] * 3), version)
    assert await stage.broker.waits.read_parents(last) == parents


async def test_the_key_of_a_workflow_that_is_redriven_lasts(stage: Stage) -> None:
    started = await start(stage, node(b"a"), key="day-1")
    await run_next(stage, Fail("no"))
    assert await follow(stage, started.id) is WorkflowState.FAILED
    await flows(stage).redrive(started.id)
    await stage.travel(8 * DAY)
    assert (await start(stage, node(b"a"), key="day-1")).duplicate


async def test_workflows_with_one_correlation_id_find_their_own_messages(stage: Stage) -> None:
    first = await start(stage, node(b"a"), correlation_id="order-7")
    await start(stage, node(b"b"), correlation_id="order-7")
    flow, version = await flows(stage).load(first.id, "default")
    await flows(stage).save(with_ids(flow, [UNKNOWN]), version)
    await stage.travel(11)
    await follow(stage, first.id)
    found, _ = await flows(stage).load(first.id, "default")
    assert found.nodes[0].id == first.ids[0]


async def test_a_blocked_workflow_is_cancelled_and_redriven(stage: Stage) -> None:
    started = await start(stage, node(b"a"), node(b"b", 0))
    await run_next(stage, SettleReject("no"))
    assert await follow(stage, started.id) is WorkflowState.BLOCKED
    assert await flows(stage).cancel(started.id) == 1
    assert await follow(stage, started.id) is WorkflowState.CANCELLED
    assert await flows(stage).redrive(started.id) == 2
    assert await run_next(stage) == [b"a"]
    assert await run_next(stage) == [b"b"]
    assert await follow(stage, started.id) is WorkflowState.COMPLETED


async def test_a_workflow_that_is_cancelled_after_its_end_is_still_removed(stage: Stage) -> None:
    started = await start(stage, node(b"a"))
    await run_next(stage)
    assert await follow(stage, started.id) is WorkflowState.COMPLETED
    assert await flows(stage).cancel(started.id) == 0
    await stage.travel(8 * DAY)
    with pytest.raises(NotFound):
        await flows(stage).get(started.id)


async def test_a_dead_node_of_a_cancelled_workflow_opens_it_again(stage: Stage) -> None:
    started = await start(stage, node(b"a"))
    await run_next(stage, SettleReject("no"))
    await flows(stage).cancel(started.id)
    assert await follow(stage, started.id) is WorkflowState.CANCELLED
    assert await flows(stage).redrive(started.id) == 1
    assert await run_next(stage) == [b"a"]
    assert await follow(stage, started.id) is WorkflowState.COMPLETED


async def test_a_cancelled_workflow_ends(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    await run_next(stage)
    assert await flows(stage).cancel(started.id) == 3
    assert await run_next(stage) == []
    assert await follow(stage, started.id) is WorkflowState.CANCELLED


class OvertakenWorkflows(Workflows):
    """Workflows of which another process saves each first."""

    overtaken = False

    async def save(self, flow: Workflow, version: int) -> bool:
        if not self.overtaken:
            self.overtaken = await super().save(replace(flow, cancelled=False), version)
        return await super().save(flow, version)


async def test_a_workflow_that_changes_meanwhile_is_cancelled(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    own = flows(stage)
    assert await OvertakenWorkflows(own.store, own.directory, own.tenant).cancel(started.id) == 4
    assert await follow(stage, started.id) is WorkflowState.CANCELLED


async def test_a_start_that_was_interrupted_finds_its_messages(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    flow, version = await flows(stage).load(started.id, "default")
    await flows(stage).save(with_ids(flow, [UNKNOWN] * 4), version)
    await stage.travel(11)
    assert await follow(stage, started.id) is WorkflowState.RUNNING
    found, _ = await flows(stage).load(started.id, "default")
    assert tuple(each.id for each in found.nodes) == started.ids


async def test_results_of_parents_are_kept_for_their_child(stage: Stage) -> None:
    started = await start(stage, *DIAMOND)
    await run_next(stage)
    await run_next(stage)
    results = await stage.store.awaited_results(started.ids[3])
    assert results == {started.ids[1]: b"b", started.ids[2]: b"c"}


async def test_a_wide_fan_in_fires_once(stage: Stage) -> None:
    wide = [node(b"%d" % number) for number in range(200)]
    started = await start(stage, *wide, node(b"end", *range(200)))
    assert len(await run_next(stage)) == 100
    assert len(await run_next(stage)) == 100
    assert await run_next(stage) == [b"end"]
    assert await run_next(stage) == []
    assert await follow(stage, started.id) is WorkflowState.COMPLETED
