"""The commands that change messages, alone or by a filter, and those for bulk actions."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.bulk import apply_to_each
from penstock.cli.bulk_actions import BulkOptions, add_bulk_options, follow, print_action, run_bulk
from penstock.cli.commands.dlq import report
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import find_message
from penstock.cli.options import limit_option
from penstock.cli.output import format_ago, print_json
from penstock.errors import InvalidState
from penstock.model.bulk import BulkVerb
from penstock.model.message import Record, State
from penstock.wire.bulk import make_bulk_view

group = click.Group()
COLUMNS = ("id", "verb", "state", "done", "skipped", "failed", "age", "name", "filter")
Act = Callable[[Broker, str], Awaitable[str]]


def take_filter(
    session: CommandContext, verb: BulkVerb, references: tuple[str, ...], given: dict[str, Any]
) -> bool:
    """Run a bulk action if a filter is given. Return False if the messages are named."""
    if bool(references) == (given["filter"] is not None):
        raise click.UsageError("Give messages, or --filter.")
    if references:
        for option in ("dry_run", "detach", "name"):
            if given[option]:
                raise click.UsageError(f"--{option.replace('_', '-')} needs --filter.")
        return False
    run_bulk(session, BulkOptions(verb=verb, **given))
    return True


def act_on_each(
    session: CommandContext,
    references: tuple[str, ...],
    act: Act,
    verb: str,
    rate: float | None,
    copies: list[str],
) -> None:
    async def call(broker: Broker, reference: str) -> str:
        return await act(broker, reference)

    done = session.run(
        lambda broker: apply_to_each(broker, references, call, rate, hidden=session.as_json)
    )
    report(session, verb, done, copies)


@command(group, "cancel")
@click.argument("references", nargs=-1)
@click.option("--force", is_flag=True, help="Cancel running messages without asking the worker.")
@click.option("--tree", is_flag=True, help="Also cancel the messages that its steps published.")
@add_bulk_options
def cancel(
    session: CommandContext, references: tuple[str, ...], force: bool, tree: bool, **given: Any
) -> None:
    """Cancel messages.

    The worker of a running message is asked to stop it. With --force the message is cancelled at
    once, and the worker can no longer settle it.

    Messages that its steps published are cancelled only with --tree.

    \b
    penstock cancel 42 43
    penstock cancel shell/j1 --force
    penstock cancel 42 --tree
    penstock cancel --filter 'queue:mail type:newsletter' --rate 100/s
    """
    for option, set_ in (("--force", force), ("--tree", tree)):
        if set_ and given["filter"] is not None:
            raise click.UsageError(f"{option} cannot be used with --filter.")
    if take_filter(session, BulkVerb.CANCEL, references, given):
        return

    async def work(broker: Broker) -> list[dict[str, Any]]:
        act = cancel_tree if tree else cancel_one
        return [await act(broker, reference, force, session.scope) for reference in references]

    for each in session.run(work):
        below = f", {each['children']} below it" if tree else ""
        print_json(each) if session.as_json else print(f"{each['id']} {each['state']}{below}")


async def cancel_one(broker: Broker, reference: str, force: bool, scope: str) -> dict[str, Any]:
    record = await find_message(broker, reference, scope)
    answer = await broker.admin.cancel(record.message.id, force=force, scope=scope)
    return describe_cancelled(record, State.CANCELLED, answer.cancel_requested)


async def cancel_tree(broker: Broker, reference: str, force: bool, scope: str) -> dict[str, Any]:
    record = await find_message(broker, reference, scope)
    done = await broker.admin.cancel_tree(record.message.id, force=force, scope=scope)
    described = describe_cancelled(record, done.state, done.cancel_requested)
    return {**described, "children": done.children}


def describe_cancelled(record: Record, state: State, requested: bool) -> dict[str, Any]:
    word = "cancellation requested" if requested else state.value
    return {"id": str(record.message.id), "state": word}


@command(group, "purge")
@click.argument("references", nargs=-1)
@add_bulk_options
def purge(session: CommandContext, references: tuple[str, ...], **given: Any) -> None:
    """Cancel ready, scheduled and dead messages.

    Unlike `penstock cancel`, it also ends dead letters, and it does not affect running messages.

    \b
    penstock purge 42
    penstock purge --filter 'state:dead queue:mail age>7d' --dry-run
    """
    if take_filter(session, BulkVerb.PURGE, references, given):
        return

    async def act(broker: Broker, reference: str) -> str:
        record = await find_message(broker, reference, session.scope)
        id = record.message.id
        if record.state is State.DEAD:
            await broker.admin.purge_dead(id, scope=session.scope)
        elif record.state is State.CLAIMED:
            raise InvalidState(
                f"message {reference} is claimed, which does not allow this operation"
            )
        else:
            await broker.admin.cancel(id, scope=session.scope)
        return str(id)

    act_on_each(session, references, act, "purged", given["rate"], [])


@command(group, "move")
@click.argument("references", nargs=-1)
@click.option("--to", "queue", required=True, shell_complete=complete_queue,
              help="Queue to move the messages to.")  # fmt: skip
@click.option("--to-scope", help="Scope of that queue.  [default: that of the message]")
@add_bulk_options
def move(
    session: CommandContext,
    references: tuple[str, ...],
    queue: str,
    to_scope: str | None,
    **given: Any,
) -> None:
    """Move ready, scheduled and dead messages to another queue.

    A moved message gets a new id. Due time, priority, headers, labels, callback and name are kept.
    The old one ends as cancelled with the reason `moved`.

    \b
    penstock move 42 --to mail
    penstock move --filter 'state:dead queue:mail' --to mail-later --dry-run
    """
    where = {"queue": queue, "to_scope": to_scope}
    if take_filter(session, BulkVerb.MOVE, references, {**given, **where}):
        return
    copies: list[str] = []

    async def act(broker: Broker, reference: str) -> str:
        record = await find_message(broker, reference, session.scope)
        moved = await broker.admin.move(
            record.message.id, queue, to_scope=to_scope, scope=session.scope
        )
        copies.append(str(moved.id))
        return str(moved.id)

    act_on_each(session, references, act, "moved", given["rate"], copies)


@command(group, "edit")
@click.argument("reference")
@click.option("--body", required=True, help="New body.")
def edit(session: CommandContext, reference: str, body: str) -> None:
    """Replace the body of a waiting or dead message.

    The edited message gets a new id, and keeps its turn among messages of its ordering key. The old
    one ends as cancelled with the reason `replaced`.

    \b
    penstock edit 42 --body '{"to": "someone@example.org"}'
    """
    copies: list[str] = []

    async def act(broker: Broker, each: str) -> str:
        record = await find_message(broker, each, session.scope)
        new = await broker.admin.edit(record.message.id, body.encode(), scope=session.scope)
        copies.append(str(new.id))
        return str(new.id)

    act_on_each(session, (reference,), act, "replaced", None, copies)


@command(group, "reprioritise")
@click.argument("references", nargs=-1)
@click.option("--priority", type=int, required=True, help="New priority; higher runs first.")
@add_bulk_options
def reprioritise(
    session: CommandContext, references: tuple[str, ...], priority: int, **given: Any
) -> None:
    """Change the priority of waiting messages.

    The new priority also applies to retries. The queue must use the ordering `priority`.

    \b
    penstock reprioritise 42 --priority 9
    penstock reprioritise --filter 'queue:mail label.tier:gold' --priority 9
    """
    chosen = {**given, "priority": priority}
    if take_filter(session, BulkVerb.REPRIORITISE, references, chosen):
        return

    async def act(broker: Broker, reference: str) -> str:
        record = await find_message(broker, reference, session.scope)
        await broker.admin.reprioritise(record.message.id, priority, scope=session.scope)
        return str(record.message.id)

    act_on_each(session, references, act, "reprioritised", given["rate"], [])


@click.group("bulk")
def bulk() -> None:
    """Manage bulk actions on all messages that match a filter.

    \b
    penstock redrive --filter 'state:dead queue:mail' --rate 50/s --detach
    penstock bulk list
    penstock bulk attach 7
    """


@command(bulk, "list")
@click.option("--active", is_flag=True, help="Only actions that have not ended.")
@limit_option("actions", 50, 1_000)
def list_actions(session: CommandContext, active: bool, limit: int) -> None:
    """List bulk actions, newest first. Ended ones are kept for 30 days.

    \b
    penstock bulk list --active
    """
    found, now = session.run_timed(
        lambda broker: broker.bulk.list_actions(active=active, limit=limit)
    )
    rows = [
        (each.id, each.title, each.state.value, each.counts.done,
         sum(each.counts.skipped.values()), each.counts.failed, format_ago(each.created_at, now),
         each.request.name, each.request.filter or "by ids")
        for each in found
    ]  # fmt: skip
    session.print_table(COLUMNS, rows, "no bulk actions", map(make_bulk_view, found))


@command(bulk, "show")
@click.argument("id", type=int)
def show(session: CommandContext, id: int) -> None:
    """Show a bulk action.

    \b
    penstock bulk show 7
    """
    print_action(session, session.run(lambda broker: broker.bulk.get(id)))


@command(bulk, "pause")
@click.argument("id", type=int)
def pause(session: CommandContext, id: int) -> None:
    """Pause a bulk action after its current batch.

    \b
    penstock bulk pause 7
    """
    print_action(session, session.run(lambda broker: broker.bulk.pause(id)))


@command(bulk, "resume")
@click.argument("id", type=int)
def resume(session: CommandContext, id: int) -> None:
    """Resume a paused bulk action.

    A server, a worker or `penstock bulk attach` continues it.

    \b
    penstock bulk resume 7
    """
    print_action(session, session.run(lambda broker: broker.bulk.resume(id)))


@command(bulk, "abort")
@click.argument("id", type=int)
def abort(session: CommandContext, id: int) -> None:
    """Abort a bulk action. Changes that it has made are kept.

    \b
    penstock bulk abort 7
    """
    print_action(session, session.run(lambda broker: broker.bulk.abort(id)))


@command(bulk, "attach")
@click.argument("id", type=int)
def attach(session: CommandContext, id: int) -> None:
    """Follow a bulk action until it ends. Ctrl-C leaves it running.

    If no server or worker is running, this command runs the action.

    \b
    penstock bulk attach 7
    """
    follow(session, lambda broker: broker.bulk.get(id), None)


COMMANDS = {
    "cancel": cancel,
    "purge": purge,
    "move": move,
    "edit": edit,
    "reprioritise": reprioritise,
    "bulk": bulk,
}
