"""Finds messages by id, by name or by filter."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.broker.search import SearchResult
from penstock.cli.context import CommandContext
from penstock.cli.output import format_clock, format_time, print_json_lines, print_table
from penstock.errors import NotFound
from penstock.model.message import Record, State
from penstock.model.settings import SHELL_TYPE

SHELL_QUEUE = "shell"
PAGE_SIZE = 200
# A page reads up to 20,000 messages.
MAX_SEARCH_PAGES = 120


async def find_message(broker: Broker, reference: str, scope: str) -> Record:
    """Find a message by id or queue/name. A name alone refers to the shell queue."""
    if not is_name(reference):
        return await broker.admin.get(reference, scope=scope)
    try:
        return await broker.admin.get(f"{SHELL_QUEUE}/{reference}", scope=scope)
    except NotFound:
        raise NotFound(
            f"no message {reference!r} in queue {SHELL_QUEUE!r}; use an id or queue/name"
        ) from None


def is_name(reference: str) -> bool:
    """Check whether the reference is a name alone, neither an id nor queue/name."""
    return not reference.isdecimal() and "/" not in reference


async def list_messages(
    broker: Broker,
    scope: str,
    state: State | None,
    queue: str | None,
    type: str | None,
    limit: int,
    before: int | None = None,
) -> list[Record]:
    """List matching messages page by page, newest first."""
    records: list[Record] = []
    while len(records) < limit:
        wanted = min(PAGE_SIZE, limit - len(records))
        page = await broker.admin.find(
            queue, state=state, type=type, before=before, limit=wanted, scope=scope
        )
        records += page
        if len(page) < wanted:
            break
        before = page[-1].message.id
    return records


async def list_in_states(
    broker: Broker,
    scope: str,
    states: Sequence[State | None],
    queue: str | None,
    type: str | None,
    limit: int,
    before: int | None = None,
) -> list[Record]:
    """List messages in any of these states, newest first."""
    pages = [
        await list_messages(broker, scope, state, queue, type, limit, before) for state in states
    ]
    records = [record for page in pages for record in page]
    if len(pages) > 1:
        # A message that moves between the reads is listed once.
        records = list({record.message.id: record for record in records}.values())
        records.sort(key=lambda record: -record.message.id)
    return records[:limit]


async def search_messages(
    broker: Broker, scope: str, filter: str, limit: int, cursor: str | None
) -> SearchResult:
    """Read pages of a search until there are enough messages, or it has read many."""
    found = SearchResult([], cursor=cursor)
    for number in range(MAX_SEARCH_PAGES):
        wanted = min(PAGE_SIZE, limit - len(found.records))
        if wanted == 0 or (number and found.cursor is None):
            break
        page = await broker.admin.search(filter, cursor=found.cursor, limit=wanted, scope=scope)
        found = msgspec.structs.replace(page, records=found.records + page.records)
    return found


def describe_next_page(found: SearchResult) -> str | None:
    """Describe how to go on with a search that has not read everything."""
    if found.cursor is None or found.scanned_to is None:
        return None
    return f"searched back to {format_clock(found.scanned_to)} UTC; more: --cursor {found.cursor}"


def refuse_mixed_pages(filter: str | None, cursor: str | None, before: int | None) -> None:
    if filter is None and cursor is not None:
        raise click.UsageError("--cursor needs --filter; without one, use --before.")
    if filter is not None and before is not None:
        raise click.UsageError("--before cannot be used with --filter; use --cursor.")


def describe_older(last: Record) -> str:
    return f"older ones: --before {last.message.id}, or a larger --limit"


def print_messages(
    session: CommandContext,
    columns: Sequence[str],
    summaries: list[dict[str, Any]],
    rows: list[Sequence[Any]],
    empty: str,
    more: str | None,
) -> None:
    """Print a page of messages, and how to see the next one."""
    if session.as_json:
        print_json_lines(summaries)
        return
    print_table(columns, rows, empty)
    if more is not None:
        print(f"\n{more}")


def join_states(filter: str, states: Sequence[State | None]) -> str:
    named = [state.value for state in states if state is not None]
    return f"{filter} state:{','.join(named)}" if named else filter


async def get_queue_name(broker: Broker, record: Record) -> str:
    return (await broker.get_queue_by_id(record.message.queue_id)).name


def summarize(record: Record, queue: str) -> dict[str, Any]:
    """Describe a message for JSON output."""
    message = record.message
    return {
        "id": str(message.id),
        "name": message.meta.name,
        "queue": queue,
        "type": message.type,
        "state": record.state.value,
        # Users give shell jobs inverted priorities: a lower number runs sooner.
        "priority": -message.priority if message.type == SHELL_TYPE else message.priority,
        "attempts": record.attempts,
        "deliveries": record.deliveries,
        "created_at": format_time(message.created_at),
        "due_at": format_time(record.due_at),
        "reason": record.reason,
        "error": record.error,
        "consumer": record.consumer,
        "claimed_at": format_time(record.claimed_at),
        "begun_at": format_time(record.begun_at),
        "percent": record.percent,
        "note": record.note,
    }
