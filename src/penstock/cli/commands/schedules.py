"""The `schedule` commands."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.commands.jobs import JobText, ensure_shell_queue
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import SHELL_QUEUE
from penstock.cli.output import format_ago, format_clock, format_time
from penstock.errors import InvalidInput, NotFound
from penstock.model.message import Draft, Moment
from penstock.model.queue import Missed, Schedule

Work = Callable[[Broker, Schedule, str], Awaitable[dict[str, Any]]]


@click.group("schedule")
def schedule() -> None:
    """Manage cron schedules. Apps declare them with their tasks.

    \b
    penstock schedule create backup --cron '0 3 * * *' --command 'make backup'
    penstock schedule list
    penstock schedule pause shop.tasks.report
    """


async def find_schedule(broker: Broker, reference: str, scope: str) -> Schedule:
    """Find a schedule by name, or by queue/name if the name is ambiguous."""
    each = [
        each
        for each in await broker.admin.schedules(scope=scope)
        if reference in (each.name, f"{each.draft.queue}/{each.name}")
    ]
    if not each:
        raise NotFound(f"no schedule named {reference!r}")
    if len(each) > 1:
        names = ", ".join(f"{one.draft.queue}/{one.name}" for one in each)
        raise InvalidInput(f"schedule name {reference!r} is ambiguous; use one of {names}")
    return each[0]


@command(schedule, "create")
@click.argument("name")
@click.option("--cron", required=True, help="When it runs: minute, hour, day, month, weekday.")
@click.option("--command", "command_", help="Command line of a shell job.")
@click.option("--type", "type_", help="Type of the message, such as the name of a task.")
@click.option("--body", default="", help="Body of the message, with --type.")
@click.option("--queue", shell_complete=complete_queue,
              help="Queue.  [default: shell with --command, otherwise default]")  # fmt: skip
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of the cron line.")
@click.option(
    "--missed", type=click.Choice([each.value for each in Missed]), default="one",
    show_default=True, help="Missed runs to catch up on: skip, one or all.",
)  # fmt: skip
def create(
    session: CommandContext,
    name: str,
    cron: str,
    command_: str | None,
    type_: str | None,
    body: str,
    queue: str | None,
    timezone: str,
    missed: str,
) -> None:
    """Create or change a schedule that enqueues a shell job or a message.

    \b
    penstock schedule create backup --cron '0 3 * * *' --command 'make backup'
    penstock schedule create report --cron '0 9 * * MON' --timezone Europe/Paris \\
        --type shop.tasks.report --queue reports
    """
    if (command_ is None) == (type_ is None):
        raise click.UsageError("Give --command for a shell job, or --type for a message.")
    if command_ is not None:
        draft = JobText(command_, queue=queue or SHELL_QUEUE).make_draft()
    else:
        draft = Draft(queue=queue or "default", type=type_ or "", body=body.encode())
    made = Schedule(name=name, cron=cron, draft=draft, timezone=timezone, missed=Missed(missed))

    async def work(broker: Broker) -> Schedule:
        if command_ is not None:
            await ensure_shell_queue(broker, draft.queue, session.scope)
        return await broker.admin.schedule(made, scope=session.scope)

    saved = session.run(work, create=True)
    session.print_result(
        describe_schedule(saved), f"{name} runs next at {format_clock(saved.next_at)} UTC"
    )


@command(schedule, "list")
def list_(session: CommandContext) -> None:
    """List schedules with their next and last run.

    \b
    penstock schedule list
    penstock schedule list --json
    """
    schedules, now = session.run_timed(lambda broker: broker.admin.schedules(scope=session.scope))
    columns = ("schedule", "queue", "cron", "time zone", "missed", "state", "next", "last")
    rows = [make_row(each, now) for each in schedules]
    session.print_table(columns, rows, "no schedules", map(describe_schedule, schedules))


def describe_schedule(each: Schedule) -> dict[str, Any]:
    return {
        "name": each.name,
        "queue": each.draft.queue,
        "type": each.draft.type,
        "cron": each.cron,
        "timezone": each.timezone,
        "missed": each.missed.value,
        "paused": each.paused,
        "next_at": format_time(each.next_at),
        "last_at": format_time(each.last_at),
    }


def make_row(each: Schedule, now: Moment) -> Sequence[Any]:
    next_tick = None if each.paused else format_ago(each.next_at, now)
    state = "paused" if each.paused else "active"
    return (each.name, each.draft.queue, each.cron, each.timezone, each.missed.value, state,
            next_tick, format_ago(each.last_at, now))  # fmt: skip


def add_schedule_command(verb: str, text: str, done: str, work: Work) -> None:
    def call(session: CommandContext, name: str) -> None:
        async def run(broker: Broker) -> dict[str, Any]:
            each = await find_schedule(broker, name, session.scope)
            return {"schedule": each.name, **await work(broker, each, session.scope)}

        result = session.run(run)
        session.print_result(result, done.format(**result))

    call.__doc__ = f"{text}\n\n\b\npenstock schedule {verb} shop.tasks.report"
    command(schedule, verb)(click.argument("name")(call))


async def pause(broker: Broker, each: Schedule, scope: str) -> dict[str, Any]:
    await broker.admin.pause_schedule(each.draft.queue, each.name, scope=scope)
    return {"paused": True}


async def resume(broker: Broker, each: Schedule, scope: str) -> dict[str, Any]:
    await broker.admin.resume_schedule(each.draft.queue, each.name, scope=scope)
    return {"paused": False}


async def run(broker: Broker, each: Schedule, scope: str) -> dict[str, Any]:
    published = await broker.run_schedule(each.draft.queue, each.name, scope=scope)
    return {"id": str(published.id), "queue": each.draft.queue}


async def delete(broker: Broker, each: Schedule, scope: str) -> dict[str, Any]:
    await broker.admin.unschedule(each.draft.queue, each.name, scope=scope)
    return {"deleted": True}


add_schedule_command("pause", "Pause a schedule.", "{schedule} is paused", pause)
add_schedule_command("resume", "Resume a paused schedule.", "{schedule} is active", resume)
add_schedule_command("run", "Run a schedule once, now.", "enqueued {schedule} (id {id})", run)
add_schedule_command(
    "delete",
    "Delete a schedule. An app that declares it creates it again when it starts.",
    "{schedule} deleted",
    delete,
)
COMMANDS = {"schedule": schedule}
