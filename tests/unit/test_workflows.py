"""Graphs of workflows, and what their nodes tell of them."""

import pytest

from penstock.errors import InvalidInput
from penstock.model.message import Dedup, Draft, State
from penstock.model.workflow import NodeDraft, Workflow, WorkflowNode, WorkflowState
from penstock.rules import workflows
from penstock.rules.workflows import check_graph, find_state, list_to_repeat

DONE, OPEN, HELD = State.COMPLETED, State.READY, State.SCHEDULED
FAILED, DEAD = State.FAILED, State.DEAD


def make_nodes(*edges: tuple[int, ...]) -> list[NodeDraft]:
    return [NodeDraft(draft=Draft(), after=after) for after in edges]


def make_workflow(*edges: tuple[int, ...], cancelled: bool = False) -> Workflow:
    nodes = tuple(
        WorkflowNode(id=place + 1, queue="q", type="t", after=after)
        for place, after in enumerate(edges)
    )
    return Workflow(
        id="w", name="n", tenant="default", scope="default", created_at=0, correlation_id="c",
        nodes=nodes, cancelled=cancelled,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "at least one node"),
        (make_nodes((1,), (0,)), "waits for itself"),
        (make_nodes((0,)), "waits for itself"),
        (make_nodes((), (7,)), "node 1 waits for node 7, which does not exist"),
        (make_nodes((), (0, 0)), "lists a node twice"),
        ([*make_nodes(()), NodeDraft(draft=Draft(), after=(0,), policy="any", need=2)],
         "node 1: need is 2, but it waits for 1 node"),
        ([NodeDraft(draft=Draft(name="x"))], "node 0 has a name"),
        ([NodeDraft(draft=Draft(dedup=Dedup("x")))], "node 0 has a dedup"),
        (make_nodes(*[()] * 10_001), "10,001 nodes"),
        ([NodeDraft(draft=Draft(body=b"x" * 2**25))] * 3, "100,663,296 bytes"),
        (make_nodes(*[()] * 5_001, *[tuple(range(5_001))] * 4), "20,004 edges"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_run_is_refused(nodes: list[NodeDraft], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_graph(nodes)


def test_a_long_chain_and_a_wide_fan_are_accepted() -> None:
    check_graph(make_nodes((), *((place,) for place in range(9_999))))
    check_graph(make_nodes(*[()] * 9_999, tuple(range(9_999))))


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((DONE, DONE, DONE), WorkflowState.COMPLETED),
        ((DONE, OPEN, HELD), WorkflowState.RUNNING),
        ((DONE, FAILED, State.CANCELLED), WorkflowState.FAILED),
        ((DONE, DEAD, HELD), WorkflowState.BLOCKED),
        ((DEAD, HELD, HELD), WorkflowState.BLOCKED),
        ((OPEN, DEAD, HELD), WorkflowState.RUNNING),
        ((DONE, None, DONE), WorkflowState.COMPLETED),
    ],
)
def test_the_nodes_tell_the_state(states: tuple[State, ...], state: WorkflowState) -> None:
    assert find_state(make_workflow((), (0,), (1,)), states) is state


def test_a_cancelled_workflow_says_so() -> None:
    states = (DONE, State.CANCELLED, State.CANCELLED)
    flow = make_workflow((), (0,), (1,), cancelled=True)
    assert find_state(flow, states) is WorkflowState.CANCELLED


def test_failed_nodes_and_what_waits_for_them_are_repeated() -> None:
    flow = make_workflow((), (0,), (0,), (1, 2), ())
    states = (DONE, FAILED, DONE, State.CANCELLED, DEAD)
    assert list_to_repeat(flow, states) == [1, 3]


def test_the_digest_knows_bodies_and_edges() -> None:
    one, two = make_nodes((), (0,)), make_nodes((), ())
    assert workflows.compute_digest("n", one) == workflows.compute_digest("n", one)
    assert workflows.compute_digest("n", one) != workflows.compute_digest("n", two)
