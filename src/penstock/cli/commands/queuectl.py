"""The command `queuectl list`: shell jobs with the fields and states of QueueCTL."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.job_output import find_output_files
from penstock.cli.lookup import SHELL_QUEUE, list_in_states
from penstock.cli.options import limit_option
from penstock.cli.output import format_time, print_json_lines, print_table
from penstock.errors import NotFound
from penstock.model.message import Record, State
from penstock.model.queue import Queue
from penstock.model.settings import SHELL_TYPE
from penstock.worker.executors.shell_job import read_job

group = click.Group()
STATES: dict[str, tuple[State, ...]] = {
    "pending": (State.READY, State.SCHEDULED),
    "processing": (State.CLAIMED,),
    "completed": (State.COMPLETED,),
    "failed": (State.SCHEDULED, State.FAILED),
    "dead": (State.DEAD,),
}
# A scheduled job is pending or failed, so more are read than are listed.
MAX_SCANNED = 10_000
COLUMNS = ("id", "state", "attempts", "max_retries", "command", "next_run_at", "last_error")


@command(group, "list")
@click.option("--state", type=click.Choice(list(STATES)), help="Filter by state.")
@click.option("--queue", default=SHELL_QUEUE, show_default=True, help="Shell queue to list.")
@limit_option("jobs", 1_000)
def list_(session: CommandContext, state: str | None, queue: str, limit: int) -> None:
    """List jobs, newest first. A failed job waits for its retry.

    \b
    queuectl list
    queuectl list --state pending
    queuectl list --state failed --json
    """

    states: Sequence[State | None] = (None,) if state is None else STATES[state]

    async def work(broker: Broker) -> list[dict[str, Any]]:
        try:
            found = await broker.admin.queue(queue, scope=session.scope)
        except NotFound:
            if queue != SHELL_QUEUE:
                raise
            # The queue is created when the first job is enqueued.
            return []
        records = await list_in_states(
            broker, session.scope, states, queue, SHELL_TYPE, max(limit, MAX_SCANNED)
        )
        kept = [record for record in records if state in (None, name_state(record))]
        return [describe_job(record, found, session.url) for record in kept[:limit]]

    jobs = session.run(work)
    if session.as_json:
        print_json_lines(jobs)
    else:
        print_table(COLUMNS, [[job[name] for name in COLUMNS] for job in jobs], "no jobs")


def describe_job(record: Record, queue: Queue, url: str) -> dict[str, Any]:
    message = record.message
    files = find_output_files(url, message.id)
    changed_at = record.timeline[-1].at if record.timeline else message.created_at
    return {
        "id": message.meta.name or str(message.id),
        "command": read_command(message.body),
        "state": name_state(record),
        "attempts": record.attempts,
        "max_retries": message.meta.max_attempts or queue.settings.max_attempts,
        "priority": -message.priority,
        "timeout_seconds": message.meta.timeout,
        "next_run_at": format_time(record.due_at),
        "locked_by": record.consumer,
        "locked_at": format_time(record.claimed_at),
        "last_error": record.error,
        "stdout_path": files.get("stdout"),
        "stderr_path": files.get("stderr"),
        "created_at": format_time(message.created_at),
        "updated_at": format_time(max(changed_at, record.claimed_at or 0)),
    }


def name_state(record: Record) -> str:
    match record.state:
        case State.SCHEDULED if record.attempts:
            return "failed"
        case State.READY | State.SCHEDULED:
            return "pending"
        case State.CLAIMED:
            return "processing"
    return record.state.value


def read_command(body: bytes) -> str:
    command = read_job(body).command
    return command if isinstance(command, str) else " ".join(command)


COMMANDS = {"list": list_}
