"""Workflows: messages that wait for each other, and what became of them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.message import Draft, Moment, State
from penstock.model.store_types import Entry

AfterPolicy = Literal["all", "any", "settled"]
OnDead = Literal["wait", "settle"]


class WorkflowState(StrEnum):
    # A large workflow whose messages are published in pieces. None of them runs yet.
    BUILDING = "building"
    RUNNING = "running"
    # Only dead letters and what waits for them are left.
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)

    @property
    def active(self) -> bool:
        return self in (WorkflowState.BUILDING, WorkflowState.RUNNING)


class NodeDraft(Struct, frozen=True, kw_only=True):
    """A message of a workflow that is not published yet. `after` has indexes of other nodes."""

    draft: Draft
    after: tuple[int, ...] = ()
    policy: AfterPolicy = "all"
    # How many must be completed, with policy "any".
    need: int = 1
    on_dead: OnDead = "wait"
    label: str = ""


class WorkflowNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a stored workflow. A redrive gives a failed node a new message."""

    id: int
    queue: str
    type: str
    after: tuple[int, ...] = ()
    policy: AfterPolicy = "all"
    need: int = 1
    on_dead: OnDead = "wait"
    label: str = ""


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow. Its counts are folded about once a second, and may lag."""

    id: str
    name: str
    tenant: str
    scope: str
    created_at: Moment
    correlation_id: str
    key: str = ""
    # Identifies the graph, so that a repeated start is recognized.
    digest: str = ""
    state: WorkflowState = WorkflowState.RUNNING
    # Grows with every redrive.
    generation: int = 1
    nodes: tuple[WorkflowNode, ...] = ()
    counts: dict[str, int] = {}
    ended_at: Moment | None = None
    cancelled: bool = False
    # The message that holds up the first nodes of a large workflow until all are published.
    gate: int = 0
    # When the pieces of a large redrive began.
    building_at: Moment | None = None


def with_ids(flow: Workflow, ids: Sequence[int]) -> Workflow:
    nodes = tuple(replace(node, id=id) for node, id in zip(flow.nodes, ids, strict=True))
    return replace(flow, nodes=nodes)


class WorkflowStart(Struct, frozen=True):
    """The outcome of a start. `duplicate` if the key already had this graph."""

    id: str
    ids: tuple[int, ...]
    duplicate: bool = False


class PreparedWorkflow(Struct, frozen=True):
    """A checked workflow and the entries of its nodes. `found` if its key had started it."""

    flow: Workflow
    entries: tuple[Entry, ...]
    found: WorkflowStart | None = None


class WorkflowView(Struct, frozen=True):
    """A workflow with the present state of each of its nodes; None if it has left the store."""

    workflow: Workflow
    states: tuple[State | None, ...]
