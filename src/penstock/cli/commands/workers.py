"""The `worker` commands: start, list, stop."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.broker.liveness import HEARTBEAT_INTERVAL_S, is_gone
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command, log_level_option
from penstock.cli.output import format_ago, format_time, print_json
from penstock.cli.settings import load_settings
from penstock.errors import InvalidState, NotFound
from penstock.model.message import Moment
from penstock.model.store_types import WorkerInfo

POLL_INTERVAL_S = 0.1
# A busy worker may renew its registration a little late.
HEARTBEAT_SLACK_S = 5.0
POSITIVE = click.FloatRange(min=0, min_open=True)
PREFETCH = "Maximum number of jobs fetched ahead. Default: adapts to how long jobs take."


@click.group("worker")
def worker() -> None:
    """Start, list and stop workers.

    \b
    penstock worker start
    penstock worker stop
    """


@command(worker, "start")
@click.argument("reference", required=False, metavar="[MODULE:APP]")
@click.option("--queue", "queues", multiple=True, help="Queue to serve. Repeatable. Default: all.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Jobs to run at a time in each process.",
)
@click.option("--prefetch", type=click.IntRange(0, 10_000), help=PREFETCH)
@click.option(
    "--processes",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Worker processes. One that is killed is replaced.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to let running jobs finish on shutdown.",
)
@click.option(
    "--lease", type=POSITIVE, help="Lease in seconds. Jobs of a crashed worker rerun after it."
)
@click.option(
    "--shell/--no-shell", default=None, help="Run shell jobs. Default: only without an app."
)
@click.option("--stop-when-empty", is_flag=True, help="Exit when no work is left.")
@click.option("--reload", "reload", is_flag=True, help="Restart when Python files change.")
@click.option(
    "--log",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines on stderr.",
)
@log_level_option
@click.option("--parent", type=int, hidden=True)
def start(
    session: CommandContext, processes: int, reload: bool, log_level: str | None, **given: Any
) -> None:
    """Start a worker that runs the tasks of an app, or shell jobs without an app.

    The app is taken from MODULE:APP, PENSTOCK_APP, or app in [tool.penstock] of pyproject.toml.
    The first SIGTERM or Ctrl-C lets running jobs finish, the second stops them.

    \b
    penstock worker start                          # shell jobs
    penstock worker start shop.tasks:app           # tasks of an app
    penstock worker start shop.tasks:app --queue mail --processes 4
    penstock worker start --count 4 --stop-when-empty
    """
    from penstock.cli.logs import configure
    from penstock.cli.run_worker import WorkerPlan, run_one
    from penstock.cli.supervisor import Supervisor, run_reloading

    common = {"url": session.url, "url_option": session.url_option, "scope": session.scope}
    level = load_settings({"log_level": log_level}).log_level
    plan = msgspec.convert({**common, "log_level": level, **given}, WorkerPlan)
    configure(plan.log, plan.log_level)
    if reload and processes > 1:
        raise click.UsageError("--reload cannot be combined with --processes.")
    if reload:
        sys.exit(run_reloading(plan, Path.cwd()))
    if processes > 1:
        sys.exit(Supervisor([plan] * processes).run())
    run_with_uvloop(run_one(plan))


def run_with_uvloop(work: Coroutine[Any, Any, None]) -> None:
    """Use uvloop if it is installed."""
    run = asyncio.run
    with suppress(ImportError):
        import uvloop

        run = uvloop.run
    # Not in an except block: the ImportError would be the context of every error of a run.
    run(work)


@command(worker, "list")
def list_(session: CommandContext) -> None:
    """List the workers of this store.

    \b
    penstock worker list
    penstock worker list --json
    """
    rows, now = session.run_timed(lambda broker: broker.workers())
    session.print_table(
        ("worker", "host", "pid", "state", "started", "seen", "slots", "version", "queues"),
        [
            (
                row.id[:12],
                row.host,
                row.pid,
                describe_state(row, now),
                format_ago(row.started_at, now),
                format_seen(row, now),
                row.slots or None,
                row.version or None,
                ", ".join(name_queue(row.scope, queue) for queue in row.queues),
            )
            for row in rows
        ],
        "no workers",
        (describe_worker(row, now) for row in rows),
    )


def name_queue(scope: str, queue: str) -> str:
    return queue if scope == "default" else f"{scope}:{queue}"


def format_seen(row: WorkerInfo, now: Moment) -> str | None:
    """Format the age of the last heartbeat, unless the next one is not due yet."""
    late = now - row.seen_at > (HEARTBEAT_INTERVAL_S + HEARTBEAT_SLACK_S) * 1_000_000
    return format_ago(row.seen_at, now) if late or is_gone(row, now) else "now"


def describe_worker(row: WorkerInfo, now: Moment) -> dict[str, Any]:
    return {
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "state": describe_state(row, now),
        "scope": row.scope,
        "queues": row.queues,
        "types": row.types,
        "slots": row.slots,
        "version": row.version,
        "started_at": format_time(row.started_at),
        "seen_at": format_time(row.seen_at),
    }


def describe_state(row: WorkerInfo, now: Moment) -> str:
    if is_gone(row, now):
        return "gone"
    return "stopping" if row.stopping else "running"


@command(worker, "stop")
@click.argument("ids", nargs=-1)
@click.option("--wait/--no-wait", default=True, help="Wait until the workers have stopped.")
@click.option("--timeout", type=POSITIVE, default=60.0, show_default=True, help="Seconds to wait.")
def stop(session: CommandContext, ids: tuple[str, ...], wait: bool, timeout: float) -> None:
    """Stop workers gracefully: running jobs finish first.

    IDS are worker ids or prefixes of them. Without IDS, all workers of the store are stopped.

    \b
    penstock worker stop
    penstock worker stop 4f1c --no-wait
    """

    async def work(broker: Broker) -> list[str]:
        now = await broker.now()
        living = []
        for row in choose_workers(await broker.workers(), ids):
            if is_gone(row, now):
                await broker.delete_worker(row.id)
            else:
                await broker.stop_worker(row.id)
                living.append(row.id)
        if wait:
            await wait_until_gone(broker, set(living), timeout)
        return living

    stopped = session.run(work)
    if session.as_json:
        print_json({"stopped": stopped})
    else:
        verb = "stopped" if wait else "asked to stop"
        print(f"{len(stopped)} {'worker' if len(stopped) == 1 else 'workers'} {verb}")


def choose_workers(rows: Sequence[WorkerInfo], ids: Sequence[str]) -> list[WorkerInfo]:
    for id in ids:
        if not any(row.id.startswith(id) for row in rows):
            raise NotFound(f"no worker whose id starts with {id!r}")
    return [row for row in rows if not ids or row.id.startswith(tuple(ids))]


async def wait_until_gone(broker: Broker, ids: set[str], timeout: float) -> None:
    """Poll the store, which sends no notice when a worker stops."""
    for _ in range(int(timeout / POLL_INTERVAL_S) + 1):
        if not await list_remaining(broker, ids):
            return
        await asyncio.sleep(POLL_INTERVAL_S)
    names = ", ".join(sorted(id[:12] for id in await list_remaining(broker, ids)))
    raise InvalidState(
        f"workers still running jobs after {timeout:g} s: {names};"
        " run `penstock list --state claimed` to see the jobs"
    )


async def list_remaining(broker: Broker, ids: set[str]) -> set[str]:
    now = await broker.now()
    rows = await broker.workers()
    return {row.id for row in rows if row.id in ids and not is_gone(row, now)}


COMMANDS = {"worker": worker}
