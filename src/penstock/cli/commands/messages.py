"""The commands `list` and `show` for messages."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from penstock.cli.message_details import (
    describe_message,
    describe_step,
    format_due,
    format_held,
    format_progress,
    list_content,
    list_details,
    print_record,
    print_steps,
    print_timeline,
)
from penstock.cli.options import add_search_options, limit_option
from penstock.cli.output import cut, format_ago, print_details, print_json
from penstock.errors import InvalidInput, NotFound
from penstock.extras import require_extra
from penstock.model.message import Moment, Record, State
from penstock.model.queue import Queue, Scope
from penstock.model.waiting import StepLog

if TYPE_CHECKING:
    from penstock.pipeline.lake.lookup import LakeMessage

group = click.Group()
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
@limit_option("messages", 20)
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

    To see the next page, pass the last id as --before. With --filter, the order
    depends on the filter; pass --cursor to see the next page.

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


@command(group, "show")
@click.argument("reference")
@click.option("--output", is_flag=True, help="Print the output of a shell job.")
@click.option(
    "--lake", metavar="LAKE", help="Read the message from a lake: a directory or s3:// URL."
)
def show(session: CommandContext, reference: str, output: bool, lake: str | None) -> None:
    """Show a message, its timeline and its durable steps.

    REFERENCE is an id or QUEUE/NAME. A name alone refers to a job in the queue shell. With
    --output, the stdout and stderr of a shell job are printed to stdout and stderr. With --lake,
    a message that retention removed from the store is read from the lake, by its id.

    \b
    penstock show 42
    penstock show shell/j1
    penstock show j1 --output
    penstock show 42 --lake /data/lake
    """
    if lake is not None:
        show_archived(lake, reference, session.as_json)
        return

    async def work(broker: Broker) -> tuple[Record, Queue, bytes | None, StepLog, Moment]:
        record = await find_message(broker, reference, session.scope)
        result = await broker.admin.result(record.message.id, scope=session.scope)
        queue = await broker.get_queue_by_id(record.message.queue_id)
        log = await broker.waits.steps(record.message.id, scope=session.scope)
        return record, queue, result, log, await broker.now()

    record, queue, result, log, now = session.run(work)
    files = find_output_files(session.url, record.message.id)
    if session.as_json:
        described = describe_message(record, queue, result)
        steps = {"steps": [describe_step(step) for step in log.steps]} if log.steps else {}
        tails = {"output": describe_output(files, whole=output)} if files else {}
        print_json(described | steps | tails)
    elif output:
        print_output(record.message.id, files)
    else:
        print_record(record, queue, result, now, find_folder(files))
        if log.steps:
            print()
            print_steps(log.steps)
        print_tails(files)


COMMANDS = {"list": list_, "show": show}


def show_archived(place: str, reference: str, as_json: bool) -> None:
    if not (reference.isascii() and reference.isdecimal() and len(reference) < 20):
        raise InvalidInput(f"{reference[:100]!r} is not an id; a lake is searched by id")
    with require_extra("pipeline"):
        from penstock.pipeline.lake.lake import find
        from penstock.pipeline.lake.lookup import find_message
    found = find_message(find(place), int(reference))
    if found is None:
        raise NotFound(f"lake {place!r} has no message with id {reference}")
    if as_json:
        print_json(describe_archived(found))
        return
    record = found.record
    # The settings of the queue are not in the lake, so neither are its limits.
    known = {"attempts": record.attempts, "deliveries": record.deliveries}
    details = list_details(record, make_queue(found), time.time_ns() // 1_000)
    print_details(
        [
            *((name, known.get(name, value)) for name, value in details),
            *list_content(record, None, None),
        ]
    )
    print_timeline(record)
    print(f"\nbatch {found.batch} of lake {place}")


def describe_archived(found: "LakeMessage") -> dict[str, Any]:
    described = describe_message(found.record, make_queue(found), None)
    for name in ("queue_state", "max_attempts", "max_deliveries", "lease", "result"):
        del described[name]
    return described | {"scope": found.scope, "tenant": found.tenant, "batch": found.batch}


def make_queue(found: "LakeMessage") -> Queue:
    id = found.record.message.queue_id
    return Queue(id, Scope(0, found.tenant or "", found.scope or ""), found.queue or str(id))
