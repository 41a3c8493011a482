"""Operations on workflows."""

from typing import Annotated

from msgspec import Meta

from penstock.http.context import RequestContext, cut_page
from penstock.http.handlers.publish import refuse_unfit
from penstock.http.operations import OperationTable
from penstock.model.workflow import Workflow, WorkflowState, WorkflowView
from penstock.rules.access import Right
from penstock.wire.fields import Cursor, PageLimit
from penstock.wire.workflows import (
    NewWorkflow,
    WorkflowChanged,
    WorkflowDetail,
    WorkflowPage,
    WorkflowStarted,
    make_node_draft,
    make_workflow_detail,
    make_workflow_summary,
)

workflows = OperationTable("workflows")
WorkflowId = Annotated[str, Meta(pattern=r"^[0-9a-f]{10,32}$", description="Workflow id.")]
# Newest first: ids begin with the time of their start.
NEWEST = (1 << 80) - 1


@workflows.add(
    "POST", "/v1/workflows", "Start a workflow", WorkflowStarted, takes=NewWorkflow, status=201,
    right=Right.PUBLISH,
    example={
        "name": "nightly",
        "nodes": [
            {"message": {"queue": "default", "type": "extract"}},
            {"message": {"queue": "default", "type": "load"}, "after": [0]},
        ],
    },
)  # fmt: skip
async def start_workflow(call: RequestContext, new: NewWorkflow) -> WorkflowStarted:
    nodes = [make_node_draft(each, call.publisher) for each in new.nodes]
    for node in nodes:
        refuse_unfit(call, node.draft)
    started = await call.broker.workflows.start(
        new.name, nodes, key=new.key, correlation_id=new.correlation_id, scope=call.scope
    )
    return WorkflowStarted(started.id, [str(id) for id in started.ids], started.duplicate)


@workflows.add("GET", "/v1/workflows", "List workflows", WorkflowPage)
async def list_workflows(
    call: RequestContext,
    state: WorkflowState | None = None,
    limit: PageLimit = 50,
    cursor: Cursor | None = None,
) -> WorkflowPage:
    """Lists workflows of which the caller may read a queue, newest first."""
    found = await call.broker.workflows.list_workflows(state=state, scope=call.scope)
    seen = [flow for flow in found if may_see(call, flow)]
    page, next_cursor = cut_page(call, seen, sort_key, limit, cursor, "workflows", state)
    return WorkflowPage([make_workflow_summary(each) for each in page], next_cursor)


def sort_key(flow: Workflow) -> str:
    return f"{NEWEST - int(flow.id, 16):024d}"


def may_see(call: RequestContext, flow: Workflow) -> bool:
    return any(call.allows(call.scope, queue) for queue in {node.queue for node in flow.nodes})


@workflows.add("GET", "/v1/workflows/{id}", "Get a workflow", WorkflowDetail)
async def get_workflow(call: RequestContext, id: WorkflowId) -> WorkflowDetail:
    """Nodes of queues that the caller may not read are shown by id and state."""
    view = await call.broker.workflows.get(id, scope=call.scope)
    queues = {node.queue for node in view.workflow.nodes}
    hidden = frozenset(name for name in queues if not call.allows(call.scope, name))
    if hidden == queues:
        check_all(call, view)
    return make_workflow_detail(view, hidden)


@workflows.add("POST", "/v1/workflows/{id}/cancel", "Cancel a workflow", WorkflowChanged)
async def cancel_workflow(call: RequestContext, id: WorkflowId) -> WorkflowChanged:
    """Cancels what has not finished. Running messages are asked to stop."""
    check_all(call, await call.broker.workflows.get(id, scope=call.scope))
    return WorkflowChanged(await call.broker.workflows.cancel(id, scope=call.scope))


@workflows.add("POST", "/v1/workflows/{id}/redrive", "Redrive a workflow", WorkflowChanged)
async def redrive_workflow(call: RequestContext, id: WorkflowId) -> WorkflowChanged:
    """Runs dead nodes again. Failed ones, and what waited for them, are published again."""
    check_all(call, await call.broker.workflows.get(id, scope=call.scope))
    return WorkflowChanged(await call.broker.workflows.redrive(id, scope=call.scope))


def check_all(call: RequestContext, view: WorkflowView) -> None:
    """Checks the right of the operation on the queues of all nodes."""
    assert call.right is not None
    for queue in sorted({node.queue for node in view.workflow.nodes}):
        call.check(call.right, queue)
