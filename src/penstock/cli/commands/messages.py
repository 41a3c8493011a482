"""The commands `list`, `show` and `cancel` for messages."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.broker.search import join_terms
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.job_output import (
    describe_output,
    find_folder,
    find_output_files,
    print_output,
    print_tails,
)
from penstock.cli.lookup import (
    describe_next_page,
    describe_older,
    find_message,
    get_queue_name,
    join_states,
    list_in_states,
    print_messages,
    refuse_mixed_pages,
    search_messages,
    summarize,
)
from penstock.cli.options import add_search_options
from penstock.cli.output import (
    cut,
    decode_body,
    escape_control,
    format_ago,
    format_body,
    format_clock,
    format_duration,
    format_time,
    print_details,
    print_json,
    print_table,
)
from penstock.model.message import HistoryRow, Moment, Record, State
from penstock.model.queue import Queue
from penstock.rules.lifecycle import compute_limits

group = click.Group()
# --json prints whole bodies.
MAX_BODY_SHOWN = 2_000
MAX_CONSUMER = 20
STATE_GROUPS = {"pending": (State.READY, State.SCHEDULED), "processing": (State.CLAIMED,)}
COLUMNS = (
    "id", "name", "queue", "type", "state", "attempts", "worker", "held", "progress", "due", "age",
    "error",
)  # fmt: skip


@command(group, "list")
@click.option(
    "--state",
    type=click.Choice([*(state.value for state in State), *STATE_GROUPS]),
    help="Filter by state. pending: ready or scheduled. processing: claimed.",
)
@click.option("--queue", shell_complete=complete_queue, help="Filter by queue.")
@click.option("--type", "type_", help="Filter by type.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option("--before", type=int, metavar="ID", help="List messages older than this one.")
@add_search_options
def list_(
    session: CommandContext,
    state: str | None,
    queue: str | None,
    type_: str | None,
    limit: int,
    before: int | None,
    filter: str | None,
    cursor: str | None,
) -> None:
    """List messages, newest first.

    To see the next page, pass the last id as --before. With --filter, messages are listed in the
    order of the index that the search uses, and the next page is at --cursor.

    \b
    penstock list --state dead
    penstock list --queue mail --type shop.tasks.send_mail --limit 100
    penstock list --filter 'state:dead error:timeout label.tier:gold,silver'
    """
    states = parse_states(state)
    refuse_mixed_pages(filter, cursor, before)

    async def work(broker: Broker) -> tuple[list[dict[str, Any]], list[Sequence[Any]], str | None]:
        scope = session.scope
        if filter is None:
            records = await list_in_states(broker, scope, states, queue, type_, limit, before)
            more = describe_older(records[-1]) if len(records) == limit else None
        else:
            text = join_terms(join_states(filter, states), queue=queue, type=type_)
            found = await search_messages(broker, scope, text, limit, cursor)
            records, more = found.records, describe_next_page(found)
        now = await broker.now()
        named = [(record, await get_queue_name(broker, record)) for record in records]
        return [summarize(*each) for each in named], [make_row(*each, now) for each in named], more

    summaries, rows, more = session.run(work)
    print_messages(session, COLUMNS, summaries, rows, "no messages", more)


def parse_states(word: str | None) -> tuple[State | None, ...]:
    if word is None:
        return (None,)
    return STATE_GROUPS[word] if word in STATE_GROUPS else (State(word),)


def make_row(record: Record, queue: str, now: Moment) -> Sequence[Any]:
    message = record.message
    due = format_due(record, now) if record.state is State.SCHEDULED else None
    worker = cut(record.consumer or "", MAX_CONSUMER)
    return (message.id, message.meta.name, queue, message.type, format_state(record),
            record.attempts, worker, format_held(record, now), format_progress(record), due,
            format_ago(message.created_at, now), record.error or record.reason)  # fmt: skip


def format_state(record: Record) -> str:
    return "claimed, running" if record.begun_at is not None else record.state.value


def format_held(record: Record, now: Moment) -> str | None:
    """Format how long a worker has run the message, or held it if it has not started."""
    return format_ago(record.begun_at or record.claimed_at, now)


@command(group, "show")
@click.argument("reference")
@click.option("--output", is_flag=True, help="Print the output of a shell job.")
def show(session: CommandContext, reference: str, output: bool) -> None:
    """Show a message and its timeline.

    REFERENCE is an id or QUEUE/NAME. A name alone refers to a job in the queue shell. With
    --output, the stdout and stderr of a shell job are printed to stdout and stderr.

    \b
    penstock show 42
    penstock show shell/j1
    penstock show j1 --output
    """

    async def work(broker: Broker) -> tuple[Record, Queue, bytes | None, Moment]:
        record = await find_message(broker, reference, session.scope)
        result = await broker.admin.result(record.message.id, scope=session.scope)
        queue = await broker.get_queue_by_id(record.message.queue_id)
        return record, queue, result, await broker.now()

    record, queue, result, now = session.run(work)
    files = find_output_files(session.url, record.message.id)
    if session.as_json:
        described = describe_message(record, queue, result)
        print_json(described | ({"output": describe_output(files, whole=output)} if files else {}))
    elif output:
        print_output(record.message.id, files)
    else:
        print_record(record, queue, result, now, find_folder(files))
        print_tails(files)


def describe_message(record: Record, queue: Queue, result: bytes | None) -> dict[str, Any]:
    meta = record.message.meta
    limits = compute_limits(meta, queue.settings, None)
    return summarize(record, queue.name) | {
        "queue_state": queue.serving_state.value,
        "max_attempts": limits[0],
        "max_deliveries": limits[1],
        "timeout": meta.timeout,
        "lease": meta.lease or queue.settings.lease,
        "blocked_by": None if record.blocked_by is None else str(record.blocked_by),
        "dedup_key": meta.dedup,
        "body": decode_body(record.message.body),
        "result": decode_body(result),
        "run_at": format_time(record.run_at),
        "expires_at": format_time(record.expires_at),
        "lease_until": format_time(record.lease_until),
        "cancel_requested": record.cancel_requested,
        "redrives": record.redrives,
        "correlation_id": meta.correlation_id,
        "ordering_key": meta.ordering_key,
        "parent_id": None if meta.parent_id is None else str(meta.parent_id),
        "callback": meta.callback,
        "headers": meta.headers or {},
        "labels": meta.labels or {},
        "timeline": [describe_event(row) for row in record.timeline],
    }


def describe_event(row: HistoryRow) -> dict[str, Any]:
    return {
        "at": format_time(row.at),
        "verb": row.verb.value,
        "state": row.state.value,
        "attempts": row.attempts,
        "deliveries": row.deliveries,
        "claimed_at": format_time(row.claimed_at),
        "due_at": format_time(row.due_at),
        "consumer": row.consumer,
        "reason": row.reason,
        "error": row.error,
        "traceback": row.traceback,
    }


def print_record(
    record: Record, queue: Queue, result: bytes | None, now: Moment, output: str | None
) -> None:
    print_details([*list_details(record, queue, now), *list_content(record, result, output)])
    if record.timeline:
        print()
        columns = ("time (utc)", "event", "state", "attempt", "took", "error")
        print_table(columns, [make_timeline_row(each) for each in record.timeline], "")
    print_traceback(record.timeline)


def list_details(record: Record, queue: Queue, now: Moment) -> list[tuple[str, Any]]:
    shown = summarize(record, queue.name)
    meta = record.message.meta
    lease = meta.lease or queue.settings.lease
    max_attempts, max_deliveries = compute_limits(meta, queue.settings, None)
    return [
        ("id", shown["id"]),
        ("name", shown["name"]),
        ("queue", queue.name),
        ("type", record.message.type),
        ("state", " ".join(filter(None, (shown["state"], describe_state(record, queue, now))))),
        ("attempts", f"{record.attempts} of {max_attempts}"),
        ("deliveries", f"{record.deliveries} of {max_deliveries}"),
        ("lease", None if record.state.final else f"{lease:g}s"),
        ("timeout", None if meta.timeout is None else f"{meta.timeout:g}s"),
        ("priority", shown["priority"] or None),
        (
            "created",
            f"{format_clock(record.message.created_at)} UTC, {format_age(record, now)} ago",
        ),
        ("expires", format_clock(record.expires_at)),
        ("correlation", meta.correlation_id),
        ("key", meta.ordering_key),
        ("dedup key", meta.dedup),
        ("parent", meta.parent_id),
        ("labels", format_pairs(meta.labels)),
        ("headers", format_pairs(meta.headers)),
        ("callback", meta.callback),
    ]


def list_content(record: Record, result: bytes | None, output: str | None) -> list[tuple[str, Any]]:
    return [
        ("progress", format_progress(record)),
        ("redrives", record.redrives or None),
        ("body", cut(format_body(record.message.body) or "", MAX_BODY_SHOWN)),
        ("result", cut(format_body(result) or "", MAX_BODY_SHOWN)),
        ("output", output),
        ("error", record.error),
    ]


def print_traceback(timeline: Sequence[HistoryRow]) -> None:
    """Print the last traceback. --json prints all of them."""
    for row in reversed(timeline):
        if row.traceback is not None:
            print(f"\ntraceback of attempt {row.attempts}, {format_clock(row.at)} UTC")
            print("\n".join(f"  {escape_control(line)}" for line in row.traceback.splitlines()))
            return


def format_pairs(pairs: dict[str, str] | None) -> str | None:
    return "\n".join(f"{name}={value}" for name, value in pairs.items()) if pairs else None


def describe_state(record: Record, queue: Queue, now: Moment) -> str | None:
    match record.state:
        case State.SCHEDULED:
            parked = f"{record.reason}, " if record.reason and not record.error else ""
            return f"({parked}due {format_due(record, now)})"
        case State.READY if not queue.serves:
            return f"(queue is {queue.serving_state.value})"
        case State.CLAIMED:
            asked = "; cancellation requested" if record.cancel_requested else ""
            word = "prefetched" if record.begun_at is None else "running"
            since = f"{word} for {format_held(record, now)} by {record.consumer}"
            return f"({since}, lease ends {format_ago(record.lease_until, now)}{asked})"
    return f"({record.reason})" if record.reason else None


def format_due(record: Record, now: Moment) -> str:
    """Format when a message is due. One with an ordering key follows the one before it."""
    if record.due_at is not None:
        return format_ago(record.due_at, now) or ""
    return "after its key is free" if record.blocked_by is None else f"after {record.blocked_by}"


def format_age(record: Record, now: Moment) -> str:
    return format_duration(max(0, now - record.message.created_at) / 1_000_000)


def format_progress(record: Record) -> str | None:
    if record.percent is None and record.note is None:
        return None
    percent = "" if record.percent is None else f"{record.percent:.0f} %"
    return " ".join(filter(None, (percent, record.note)))


def make_timeline_row(row: HistoryRow) -> Sequence[Any]:
    took = None if row.claimed_at is None else f"{(row.at - row.claimed_at) / 1_000_000:.1f}s"
    return (format_clock(row.at), row.verb.value, row.state.value, row.attempts, took,
            row.error or row.reason)  # fmt: skip


@command(group, "cancel")
@click.argument("references", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Cancel running messages without asking the worker.")
def cancel(session: CommandContext, references: tuple[str, ...], force: bool) -> None:
    """Cancel messages.

    The worker of a running message is asked to stop it. With --force the message is cancelled at
    once, and the worker can no longer settle it.

    \b
    penstock cancel 42 43
    penstock cancel shell/j1 --force
    """

    async def work(broker: Broker) -> list[dict[str, str]]:
        done = []
        for reference in references:
            record = await find_message(broker, reference, session.scope)
            answer = await broker.admin.cancel(record.message.id, force=force, scope=session.scope)
            state = "cancellation requested" if answer.cancel_requested else "cancelled"
            done.append({"id": str(record.message.id), "state": state})
        return done

    for each in session.run(work):
        print_json(each) if session.as_json else print(f"{each['id']} {each['state']}")


COMMANDS = {"list": list_, "show": show, "cancel": cancel}
