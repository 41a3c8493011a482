"""The `workflow` commands."""

import asyncio

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago, print_json, print_table
from penstock.errors import InvalidState
from penstock.model.message import Moment
from penstock.model.workflow import Workflow, WorkflowState, WorkflowView
from penstock.rules.plurals import format_count
from penstock.wire.workflows import make_workflow_detail, make_workflow_summary

POLL_INTERVAL_S = 0.5


@click.group("workflow")
def workflow() -> None:
    """Manage workflows of messages that depend on each other.

    \b
    penstock workflow list
    penstock workflow show 6430a1b2c3d4e5
    penstock workflow redrive 6430a1b2c3d4e5
    """


@command(workflow, "list")
@click.option(
    "--state", type=click.Choice([each.value for each in WorkflowState]), help="Filter by state."
)
def list_(session: CommandContext, state: str | None) -> None:
    """List workflows, newest first.

    \b
    penstock workflow list --state blocked
    """

    async def work(broker: Broker) -> tuple[list[Workflow], Moment]:
        chosen = None if state is None else WorkflowState(state)
        found = await broker.workflows.list_workflows(state=chosen, scope=session.scope)
        return found, await broker.now()

    found, now = session.run(work)
    rows = [
        (
            each.id,
            each.name,
            each.state,
            f"{each.counts.get('completed', 0)}/{len(each.nodes)}",
            format_ago(each.created_at, now),
        )
        for each in found
    ]
    columns = ("id", "name", "state", "completed", "age")
    session.print_table(columns, rows, "no workflows", map(make_workflow_summary, found))


@command(workflow, "show")
@click.argument("id")
def show(session: CommandContext, id: str) -> None:
    """Show a workflow and the state of each of its messages.

    \b
    penstock workflow show 6430a1b2c3d4e5
    """
    view = session.run(lambda broker: broker.workflows.get(id, scope=session.scope))
    if session.as_json:
        print_json(make_workflow_detail(view))
        return
    flow = view.workflow
    print(f"{flow.name}  {flow.state}  generation {flow.generation}\n")
    rows = [
        (
            place,
            node.id,
            node.queue,
            node.label or node.type,
            state or "gone",
            " ".join(map(str, node.after)) or None,
        )
        for place, (node, state) in enumerate(zip(flow.nodes, view.states, strict=True))
    ]
    print_table(("node", "message", "queue", "type", "state", "after"), rows, "no nodes")


@command(workflow, "cancel")
@click.argument("id")
def cancel(session: CommandContext, id: str) -> None:
    """Cancel unfinished messages of a workflow. Running ones are asked to stop.

    \b
    penstock workflow cancel 6430a1b2c3d4e5
    """
    count = session.run(lambda broker: broker.workflows.cancel(id, scope=session.scope))
    report(session, id, count, "cancelled")


@command(workflow, "redrive")
@click.argument("id")
def redrive(session: CommandContext, id: str) -> None:
    """Redrive dead messages, and publish failed ones and their dependents again.

    \b
    penstock workflow redrive 6430a1b2c3d4e5
    """
    count = session.run(lambda broker: broker.workflows.redrive(id, scope=session.scope))
    report(session, id, count, "redriven")


def report(session: CommandContext, id: str, count: int, verb: str) -> None:
    session.print_result(
        {"id": id, "messages": count}, f"workflow {id}: {format_count(count, 'message')} {verb}"
    )


@command(workflow, "wait")
@click.argument("id")
@click.option("--timeout", type=click.FloatRange(0.1), help="Seconds to wait.")
def wait(session: CommandContext, id: str, timeout: float | None) -> None:
    """Wait until a workflow has ended. Fails if it did not complete.

    \b
    penstock workflow wait 6430a1b2c3d4e5 --timeout 600
    """

    async def work(broker: Broker) -> WorkflowView:
        async with asyncio.timeout(timeout):
            while True:
                view = await broker.workflows.get(id, scope=session.scope)
                if not view.workflow.state.active:
                    return view
                await asyncio.sleep(POLL_INTERVAL_S)

    try:
        view = session.run(work)
    except TimeoutError:
        raise InvalidState(f"workflow {id} did not end within {timeout:g} s") from None
    session.print_result(make_workflow_detail(view), view.workflow.state)
    if view.workflow.state is not WorkflowState.COMPLETED:
        raise SystemExit(1)


COMMANDS = {"workflow": workflow}
