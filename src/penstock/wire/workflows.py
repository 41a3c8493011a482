"""Wire types of workflows."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.message import State
from penstock.model.structs import copy_fields
from penstock.model.workflow import (
    AfterPolicy,
    NodeDraft,
    OnDead,
    Workflow,
    WorkflowNode,
    WorkflowState,
    WorkflowView,
)
from penstock.rules.workflows import MAX_NODES
from penstock.wire.fields import (
    Time,
    Word,
    to_datetime,
    to_moment,
    to_optional_datetime,
    to_optional_moment,
)
from penstock.wire.publish import PublishRequest, make_draft, make_publish_request

Place = Annotated[int, Meta(ge=0, lt=MAX_NODES, description="The index of another node.")]


class NewNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message, and the nodes it waits for by index. `any` needs `need` of them completed."""

    message: PublishRequest
    after: list[Place] = []
    policy: AfterPolicy = "all"
    need: Annotated[int, Meta(ge=1)] = 1
    on_dead: OnDead = "wait"
    label: Annotated[str, Meta(max_length=200)] = ""


class NewWorkflow(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Messages that wait for each other. All are published, or none. A key is unique while its
    workflow is stored."""

    name: Word
    nodes: Annotated[list[NewNode], Meta(min_length=1, max_length=MAX_NODES)]
    key: Word | None = None
    correlation_id: Word | None = None


class WorkflowStarted(Struct, frozen=True):
    """The id of the workflow, and those of its messages in the order of the nodes."""

    id: str
    messages: list[str]
    duplicate: bool = False


class NodeView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node. Without a state its message has left the store, or the caller may not read it."""

    id: str
    queue: str
    type: str
    state: State | None = None
    after: list[int] = []
    policy: AfterPolicy = "all"
    need: int = 1
    on_dead: OnDead = "wait"
    label: str = ""


class WorkflowSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow in a list. Its state and counts may lag by a second."""

    id: str
    name: str
    state: WorkflowState
    created_at: Time
    generation: int
    size: int
    correlation_id: str
    counts: dict[str, int] = {}
    key: str = ""
    ended_at: Time | None = None


class WorkflowDetail(WorkflowSummary, frozen=True, kw_only=True, omit_defaults=True):
    nodes: list[NodeView] = []


class WorkflowPage(Struct, frozen=True, omit_defaults=True):
    workflows: list[WorkflowSummary]
    cursor: str | None = None


class WorkflowChanged(Struct, frozen=True):
    """The number of messages that were cancelled or redriven."""

    messages: int


def make_node_draft(sent: NewNode, publisher: str | None) -> NodeDraft:
    draft = make_draft(sent.message, publisher)
    return copy_fields(NodeDraft, sent, draft=draft, after=tuple(sent.after))


def make_new_node(node: NodeDraft) -> NewNode:
    return copy_fields(
        NewNode, node, message=make_publish_request(node.draft), after=list(node.after)
    )


def make_workflow_summary(flow: Workflow) -> WorkflowSummary:
    return copy_fields(
        WorkflowSummary,
        flow,
        created_at=to_datetime(flow.created_at),
        size=len(flow.nodes),
        ended_at=to_optional_datetime(flow.ended_at),
    )


def make_workflow_detail(
    view: WorkflowView, hidden: frozenset[str] = frozenset()
) -> WorkflowDetail:
    """Nodes of hidden queues are shown by id and state alone."""
    flow = view.workflow
    nodes = [
        make_node_view(node, state, hidden)
        for node, state in zip(flow.nodes, view.states, strict=True)
    ]
    return copy_fields(WorkflowDetail, make_workflow_summary(flow), nodes=nodes)


def make_node_view(node: WorkflowNode, state: State | None, hidden: frozenset[str]) -> NodeView:
    secret = node.queue in hidden
    return NodeView(
        id=str(node.id),
        queue="" if secret else node.queue,
        type="" if secret else node.type,
        state=state,
        after=list(node.after),
        policy=node.policy,
        need=node.need,
        on_dead=node.on_dead,
        label="" if secret else node.label,
    )


def read_workflow(detail: WorkflowDetail, scope: str) -> WorkflowView:
    """Turns a server's answer into the model."""
    flow = copy_fields(
        Workflow,
        detail,
        tenant="default",
        scope=scope,
        created_at=to_moment(detail.created_at),
        nodes=tuple(map(read_node, detail.nodes)),
        ended_at=to_optional_moment(detail.ended_at),
    )
    return WorkflowView(flow, tuple(node.state for node in detail.nodes))


def read_node(node: NodeView) -> WorkflowNode:
    return copy_fields(WorkflowNode, node, id=int(node.id), after=tuple(node.after))
