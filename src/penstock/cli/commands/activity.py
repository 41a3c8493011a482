"""The commands `activity` and `trace`."""

import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.cli.completion import complete_filter
from penstock.cli.context import CommandContext, command
from penstock.cli.options import limit_option
from penstock.cli.output import (
    escape_control,
    format_clock,
    format_time,
    print_json,
    print_json_lines,
    print_table,
)
from penstock.errors import NotFound
from penstock.model.activity import ActivityEntry, ActivityPage, Trace, TracedMessage
from penstock.model.message import NEVER
from penstock.rules.audit_changes import format_changes
from penstock.rules.events import ACTIVITY_KINDS
from penstock.rules.filter_parser import parse_moment

group = click.Group()
PAGE_SIZE = 200
# A page reads up to 20,000 entries.
MAX_PAGES = 50
COLUMNS = ("time", "event", "queue", "id", "type", "by", "detail")


@command(group, "activity")
@click.option(
    "--filter",
    default="",
    metavar="FILTER",
    help="Filter, such as 'queue:mail*'.",
    shell_complete=complete_filter,
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(ACTIVITY_KINDS),
    metavar="KIND",
    help="Only events of this kind, such as message.dead or act. Repeatable.",
)
@click.option("--since", help="Only events from this time on: 2026-11-16, today or -2h.")
@click.option("--until", help="Only events before this time.")
@limit_option("entries", 50, 10_000)
@click.option("--cursor", metavar="CURSOR", help="Cursor of the previous page.")
@click.option("--follow", is_flag=True, help="Print new events as they happen, until interrupted.")
def activity(
    session: CommandContext,
    since: str | None,
    until: str | None,
    limit: int,
    cursor: str | None,
    follow: bool,
    **asked: Any,
) -> None:
    """Show recent activity, newest first.

    Message history and entries of the audit log are merged. --filter accepts the fields of events:
    state, queue, scope, type, id, correlation, consumer, reason, error, error.kind and attempts.

    \b
    penstock activity --filter 'queue:mail* -state:completed' --since -1h
    penstock activity --kind message.dead --kind act
    penstock activity --follow
    """
    if follow and (since or until or cursor):
        raise click.UsageError("--follow cannot be used with --since, --until or --cursor.")

    async def watch(broker: Broker) -> None:
        await print_new(broker, session.as_json, **asked)

    async def work(broker: Broker) -> ActivityPage:
        now = await broker.now()
        asked["since"] = 0 if since is None else parse_moment(since, now)
        asked["until"] = NEVER if until is None else parse_moment(until, now)
        return await read_pages(broker, limit, cursor, **asked)

    if follow:
        with suppress(KeyboardInterrupt):
            session.run(watch)
    else:
        print_page(session.run(work), session.as_json)


async def print_new(broker: Broker, as_json: bool, **asked: Any) -> None:
    async for entry in broker.activity.follow(**asked):
        if as_json:
            print_json(describe_entry(entry))
        else:
            cells = [str(cell) for cell in make_row(entry) if cell is not None]
            print(escape_control("  ".join(cells)))
        sys.stdout.flush()


async def read_pages(broker: Broker, limit: int, cursor: str | None, **asked: Any) -> ActivityPage:
    """Read pages until there are enough entries, or many were read."""
    found = ActivityPage([], cursor)
    for number in range(MAX_PAGES):
        wanted = min(PAGE_SIZE, limit - len(found.entries))
        if wanted == 0 or (number and found.cursor is None):
            break
        page = await broker.activity.find(cursor=found.cursor, limit=wanted, **asked)
        found = msgspec.structs.replace(page, entries=found.entries + page.entries)
    return found


def print_page(page: ActivityPage, as_json: bool) -> None:
    if as_json:
        print_json_lines(map(describe_entry, page.entries))
        return
    print_table(COLUMNS, map(make_row, page.entries), "no activity")
    if page.cursor is not None and page.scanned_to is not None:
        read_to = format_clock(page.scanned_to)
        print(f"\nsearched back to {read_to} UTC; more: --cursor {page.cursor}")


def make_row(entry: ActivityEntry) -> tuple[Any, ...]:
    return (
        format_clock(entry.at),
        entry.verb if entry.kind == "act" else entry.kind.removeprefix("message."),
        entry.queue or None,
        entry.id,
        entry.type,
        entry.subject or entry.consumer,
        entry.error or entry.reason or format_act(entry),
    )


def format_act(entry: ActivityEntry) -> str:
    return " ".join(filter(None, (entry.target, format_changes(entry.detail or ""))))


def describe_entry(entry: ActivityEntry) -> dict[str, Any]:
    """Describe an entry for JSON output, without empty fields."""
    fields = msgspec.structs.asdict(entry)
    shown = {name: value for name, value in fields.items() if value not in (None, "")}
    ids = {"id": str(entry.id)} if entry.id is not None else {}
    return shown | {"at": format_time(entry.at), "position": str(entry.position)} | ids


@command(group, "trace")
@click.argument("correlation_id", metavar="CORRELATION")
def trace(session: CommandContext, correlation_id: str) -> None:
    """Show the messages of a correlation id.

    Prints the messages as a tree, each below its parent, and then their history with entries of the
    audit log.

    \b
    penstock trace order-7
    penstock trace order-7 --json | jq .events
    """
    found = session.run(lambda broker: broker.activity.trace(correlation_id))
    if not found.messages and not found.events:
        raise NotFound(f"no message with correlation id {correlation_id!r}")
    if session.as_json:
        print_json(describe_trace(found))
        return
    print_tree(found)
    print()
    print_events(found)
    if not found.complete:
        print("\ntruncated: only the first messages and audit entries were read")


def print_tree(found: Trace) -> None:
    columns = ("message", "queue", "type", "state", "attempts", "error")
    print_table(columns, map(make_tree_row, found.messages), "no messages")


def make_tree_row(traced: TracedMessage) -> tuple[Any, ...]:
    record = traced.record
    return (
        "· " * (traced.depth - 1) + "└ " * (traced.depth > 0) + str(record.message.id),
        traced.queue,
        record.message.type,
        record.state.value,
        record.attempts,
        record.error or record.reason,
    )


def print_events(found: Trace) -> None:
    first = min((event.at for event in found.events), default=0)
    columns = ("after", *COLUMNS[1:])
    rows = [(f"{(each.at - first) / 1_000_000:.3f}s", *make_row(each)[1:]) for each in found.events]
    print_table(columns, rows, "no events")


def describe_trace(found: Trace) -> dict[str, Any]:
    return {
        "correlation_id": found.correlation_id,
        "complete": found.complete,
        "messages": [describe_message(each) for each in found.messages],
        "events": [describe_entry(each) for each in found.events],
    }


def describe_message(traced: TracedMessage) -> dict[str, Any]:
    record, message = traced.record, traced.record.message
    return {
        "id": str(message.id),
        "parent": None if traced.parent is None else str(traced.parent),
        "depth": traced.depth,
        "scope": traced.scope,
        "queue": traced.queue,
        "type": message.type,
        "state": record.state.value,
        "attempts": record.attempts,
        "created_at": format_time(message.created_at),
        "causation_id": message.meta.causation_id,
        "reason": record.reason,
        "error": record.error,
    }


COMMANDS = {"activity": activity, "trace": trace}
