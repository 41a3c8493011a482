"""The `dlq` commands and `redrive`, for single messages or all that match a filter."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.broker.search import join_terms
from penstock.cli.bulk import BulkResult, apply_to_each
from penstock.cli.bulk_actions import RATE, BulkOptions, run_bulk
from penstock.cli.commands.messages import show
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import (
    describe_next_page,
    find_message,
    get_queue_name,
    list_messages,
    print_messages,
    refuse_mixed_pages,
    search_messages,
    summarize,
)
from penstock.cli.options import add_search_options, limit_option
from penstock.cli.output import format_ago, print_json
from penstock.errors import InvalidState
from penstock.model.bulk import BulkVerb
from penstock.model.message import Moment, Record, State

MAX_SELECTED = 10_000_000
MAX_IDS_SHOWN = 5
COLUMNS = ("id", "name", "queue", "type", "attempts", "age", "reason", "error")
Act = Callable[[Broker, str], Coroutine[Any, Any, Any]]
group = click.Group()


@click.group("dlq")
def dlq() -> None:
    """Manage dead letters.

    A message becomes a dead letter when it runs out of attempts or is rejected.

    \b
    penstock dlq list
    penstock dlq retry --all --queue mail --rate 50
    """


def add_filter_options(call: Any) -> Any:
    """Add the options shared by commands that act on many messages."""
    for option in (
        click.option("--rate", type=RATE, metavar="RATE", help="Maximum rate, such as 50/s."),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=MAX_SELECTED,
            help="Maximum number of messages.",
        ),
        click.option("--dry-run", is_flag=True, help="Only print what would be done."),
        click.option("--error", help="With --all, filter by a part of the error."),
        click.option("--type", "type_", help="With --all, filter by type."),
        click.option("--queue", shell_complete=complete_queue, help="With --all, filter by queue."),
        click.option("--all", "everything", is_flag=True, help="Select all matching messages."),
        click.argument("references", nargs=-1),
    ):
        call = option(call)
    return call


def run_all(
    session: CommandContext,
    references: Sequence[str],
    state: State,
    act: Act,
    verb: str,
    copies: Sequence[str] = (),
    **given: Any,
) -> None:
    """Apply `act` to the given messages, or to all in `state` that match the filter.

    `act` appends the ids of messages it publishes to `copies`.
    """
    if bool(references) == given["everything"]:
        raise click.UsageError("Give messages, or --all (with --queue or --type to filter).")
    wanted = list(references) or find_matching(session, state, given)
    if given["dry_run"]:
        would = {"would_be_" + verb: len(wanted), "ids": wanted}
        print_json(would) if session.as_json else print(f"{len(wanted)} would be {verb}")
        return
    if wanted and given.get("ask"):
        click.confirm(given["ask"].format(len(wanted)), abort=True, err=True)
    bulk = session.run(
        lambda broker: apply_to_each(broker, wanted, act, given["rate"], hidden=session.as_json)
    )
    report(session, verb, bulk, copies)


def find_matching(session: CommandContext, state: State, given: dict[str, Any]) -> list[str]:
    """List ids of matching messages, oldest first."""

    async def work(broker: Broker) -> list[Record]:
        limit = given["limit"] if given["error"] is None else MAX_SELECTED
        filter = (state, given["queue"], given["type_"], limit)
        return await list_messages(broker, session.scope, *filter)

    found = session.run(work)
    if (part := given["error"]) is not None:
        found = [record for record in found if part in (record.error or "")][: given["limit"]]
    return [str(record.message.id) for record in reversed(found)]


def report(session: CommandContext, verb: str, bulk: BulkResult, copies: Sequence[str]) -> None:
    """Print the result. `copies` are the ids of new messages that replace the given ones."""
    if session.as_json:
        print_json({verb: len(bulk.done), "ids": bulk.done, "errors": bulk.errors})
    else:
        print(f"{len(bulk.done)} {verb}{format_ids(copies)}")
        for error in bulk.errors:
            click.echo(f"penstock: {error}", err=True)
    if bulk.errors:
        raise SystemExit(1)


def format_ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MAX_IDS_SHOWN} more" if len(ids) > MAX_IDS_SHOWN else ""
    return f", as {', '.join(ids[:MAX_IDS_SHOWN])}{more}" if ids else ""


@command(dlq, "list")
@click.option("--queue", shell_complete=complete_queue, help="Filter by queue.")
@click.option("--type", "type_", help="Filter by type.")
@limit_option("messages", 20)
@click.option("--before", type=int, metavar="ID", help="List messages older than this one.")
@add_search_options
def list_(
    session: CommandContext,
    queue: str | None,
    type_: str | None,
    limit: int,
    before: int | None,
    filter: str | None,
    cursor: str | None,
) -> None:
    """List dead letters, newest first.

    To see the next page, pass the last id as --before. With --filter, the newest come first in each
    queue; pass --cursor to see the next page.

    \b
    penstock dlq list
    penstock dlq list --queue mail --limit 100
    penstock dlq list --filter 'error:timeout age>1h'
    penstock dlq list --before 1041
    """

    refuse_mixed_pages(filter, cursor, before)

    async def work(broker: Broker) -> tuple[list[dict[str, Any]], list[Sequence[Any]], str | None]:
        scope = session.scope
        if filter is None:
            records = await list_messages(broker, scope, State.DEAD, queue, type_, limit, before)
            total = await count_dead(broker, scope, queue)
            more = describe_older(records, total, type_) if len(records) == limit else None
        else:
            text = join_terms(filter, state=State.DEAD, queue=queue, type=type_)
            found = await search_messages(broker, scope, text, limit, cursor)
            records, more = found.records, describe_next_page(found)
        now = await broker.now()
        named = [(record, await get_queue_name(broker, record)) for record in records]
        return [summarize(*each) for each in named], [make_row(*each, now) for each in named], more

    summaries, rows, more = session.run(work)
    print_messages(session, COLUMNS, summaries, rows, "no dead letters", more)


def describe_older(records: list[Record], total: int, type_: str | None) -> str | None:
    count = len(records)
    if count >= total:
        return None
    shown = f"{count} of {total}" if type_ is None else f"the first {count}"
    return f"{shown}; older ones: --before {records[-1].message.id}, or a larger --limit"


async def count_dead(broker: Broker, scope: str, queue: str | None) -> int:
    depths = await broker.depths()
    queues = await broker.admin.queues(scope=scope)
    return sum(depths.get((each.id, "dead"), 0) for each in queues if queue in (None, each.name))


def make_row(record: Record, queue: str, now: Moment) -> Sequence[Any]:
    message = record.message
    died_at = record.timeline[-1].at if record.timeline else message.created_at
    return (message.id, message.meta.name, queue, message.type, record.attempts,
            format_ago(died_at, now), record.reason, record.error)  # fmt: skip


@command(dlq, "retry")
@add_filter_options
def retry(session: CommandContext, references: tuple[str, ...], **given: Any) -> None:
    """Put dead letters back into their queues, with attempts reset to 0.

    \b
    penstock dlq retry 42 shell/j1
    penstock dlq retry --all --queue mail --rate 50
    """

    async def act(broker: Broker, reference: str) -> str:
        record = await find_dead(broker, reference, session.scope)
        await broker.admin.redrive(record.message.id, scope=session.scope)
        return str(record.message.id)

    run_all(session, references, State.DEAD, act, "retried", **given)


@command(dlq, "purge")
@add_filter_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def purge(session: CommandContext, references: tuple[str, ...], yes: bool, **given: Any) -> None:
    """Purge dead letters: they end as cancelled.

    They remain visible until their retention period ends.

    \b
    penstock dlq purge 42 shell/j1
    penstock dlq purge --all --queue mail --yes
    """
    ask = given["everything"] and not yes and "End {} dead letters as cancelled?"

    async def act(broker: Broker, reference: str) -> str:
        record = await find_dead(broker, reference, session.scope)
        await broker.admin.purge_dead(record.message.id, scope=session.scope)
        return str(record.message.id)

    run_all(session, references, State.DEAD, act, "purged", ask=ask, **given)


async def find_dead(broker: Broker, reference: str, scope: str) -> Record:
    record = await find_message(broker, reference, scope)
    if record.state is not State.DEAD:
        raise InvalidState(f"message {reference} is {record.state}, not dead")
    return record


@command(group, "redrive")
@add_filter_options
@click.option("--state", type=click.Choice(["dead", "failed", "expired", "cancelled", "completed"]),
              default="dead", show_default=True, help="With --all, filter by state.")  # fmt: skip
@click.option("--body", help="New body. The message is replaced by a new one.")
@click.option(
    "--filter",
    metavar="FILTER",
    help="Select messages by a filter, such as 'state:dead age>10m error:timeout'.",
)
@click.option("--yes", is_flag=True, help="With --filter, do not ask for confirmation.")
@click.option(
    "--detach", is_flag=True, help="With --filter, do not wait until the bulk action ends."
)
@click.option("--name", help="With --filter, a name for the bulk action.")
@click.option("--from-step", "step", metavar="NAME",
              help="Discard the stored steps of a dead letter from this one on.")  # fmt: skip
def redrive(
    session: CommandContext,
    references: tuple[str, ...],
    state: str,
    body: str | None,
    step: str | None,
    **given: Any,
) -> None:
    """Put ended messages back into their queues.

    A dead letter keeps its id, and its attempts are reset to 0. Any other message is published
    again as a new one.

    \b
    penstock redrive 42
    penstock redrive 42 --body '{"to": "someone@example.org"}'
    penstock redrive 42 --from-step pay-back
    penstock redrive --all --state failed --queue mail --rate 50
    penstock redrive --filter 'state:dead queue:mail error:timeout' --rate 50/s
    """
    bulk = {name: given.pop(name) for name in ("filter", "yes", "detach", "name")}
    if bulk["filter"] is not None:
        refuse_mixed_selection(references, body or step, given)
        chosen = {"rate": given["rate"], "dry_run": given["dry_run"], **bulk}
        run_bulk(session, BulkOptions(verb=BulkVerb.REDRIVE, **chosen))
        return
    copies: list[str] = []
    act = make_redrive(session.scope, body, step, copies)
    run_all(session, references, State(state), act, "redriven", copies, **given)


def make_redrive(scope: str, body: str | None, step: str | None, copies: list[str]) -> Act:
    """Makes the redrive of one message. It adds the ids of new messages to `copies`."""
    if step is not None and body is not None:
        raise click.UsageError("--from-step and --body are mutually exclusive")
    edited = None if body is None else body.encode()

    async def act(broker: Broker, reference: str) -> str:
        record = await find_message(broker, reference, scope)
        if step is not None:
            again, _ = await broker.waits.redrive_from(record.message.id, step, scope=scope)
            return str(again.id)
        published = await broker.admin.redrive(record.message.id, body=edited, scope=scope)
        if published.id != record.message.id:
            copies.append(str(published.id))
        return str(published.id)

    return act


def refuse_mixed_selection(
    references: Sequence[str], body: str | None, given: dict[str, Any]
) -> None:
    others = [given[name] for name in ("everything", "queue", "type_", "error")]
    if references or body is not None or any(others) or given["limit"] != MAX_SELECTED:
        raise click.UsageError(
            "--filter selects all messages: give no ids, --body, --limit, --all or its filters."
        )


dlq.add_command(show, "show")
COMMANDS = {"dlq": dlq, "redrive": redrive}
