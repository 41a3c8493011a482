"""The commands `status` and `agents`."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.liveness import is_gone
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago, format_time, print_json, print_table
from penstock.model.message import PLACE_STATES, Moment
from penstock.model.queue import Queue
from penstock.model.store_types import AgentRun
from penstock.store import Store

ENDS = ("completed", "failed", "cancelled", "expired")
# Counting stops here, so that status stays fast.
MAX_ENDED_COUNTED = 10_000
AGENTS = {
    "visibility_timeout_enforcer": "1 s",
    "scheduler": "1 s",
    "expiry_enforcer": "60 s",
    "priority_aging_worker": "5 min",
    "dead_letter_monitor": "60 s",
    "message_archiver": "5 min",
    "audit_sealer": "2 s",
    "bulk_runner": "1 s",
    "historian": "2 s",
    "anomaly_detector": "10 s",
    "rule_follower": "0.5 s",
    "broadcast_follower": "1 s",
    "human_reminder": "1 s",
    "workflow_follower": "1 s",
}
NEVER_RUN = AgentRun("", 0, "", None)
group = click.Group()


async def count_by_queue(broker: BrokerInterface, scope: str) -> list[tuple[Queue, dict[str, int]]]:
    """Count the messages of each queue by state."""
    depths = await broker.depths(MAX_ENDED_COUNTED)
    names = {**PLACE_STATES, **{state: state for state in ENDS}}
    return [
        (queue, {name: depths.get((queue.id, place), 0) for place, name in names.items()})
        for queue in await broker.admin.queues(scope=scope)
        if not queue.system
    ]


async def gather(broker: BrokerInterface, scope: str) -> dict[str, Any]:
    now = await broker.now()
    workers = [each for each in await broker.workers() if not is_gone(each, now)]
    counted = await count_by_queue(broker, scope)
    truncated = sum(counts[state] for _, counts in counted for state in ENDS) >= MAX_ENDED_COUNTED
    return {
        "queues": [
            {
                "queue": queue.name,
                "state": queue.serving_state.value,
                "scope_paused": queue.scope.paused,
                "shell": queue.settings.shell,
                "served": any(worker.serves(queue) for worker in workers),
            }
            | counts
            for queue, counts in counted
        ],
        "ended_counted": MAX_ENDED_COUNTED,
        "truncated": truncated,
        "workers": len(workers),
    }


@command(group, "status")
def status(session: CommandContext) -> None:
    """Show message counts by queue, and the number of workers.

    \b
    penstock status
    penstock status --json | jq .workers
    """

    async def work(broker: Broker) -> dict[str, Any]:
        found = await gather(broker, session.scope)
        return {**found, "durability": broker.capabilities.durability}

    found = session.run(work)
    if session.as_json:
        print_json(found)
        return
    print_counts(found["queues"], found["truncated"])
    workers = found["workers"]
    print(
        f"\n{workers} {'worker' if workers == 1 else 'workers'}, durability {found['durability']}"
    )
    for hint in make_hints(found):
        print(hint)


def print_counts(queues: Sequence[dict[str, Any]], truncated: bool = False) -> None:
    """Print counts. The columns failed, cancelled and expired appear if they are not empty."""
    columns = ["queue", "state", *PLACE_STATES.values(), *ENDS]
    rows = [[make_cell(row, name, truncated) for name in columns] for row in queues]
    print_table(columns, rows, "no queues")


def make_cell(row: dict[str, Any], name: str, truncated: bool) -> Any:
    """Return a count. A + marks one of ended messages that has more."""
    if name not in ENDS:
        return row[name]
    if name != ENDS[0] and not row[name]:
        return None
    return f"{row[name]}+" if truncated else row[name]


def make_hints(found: dict[str, Any]) -> list[str]:
    """Suggest commands for problems that the counts show."""
    queues = found["queues"]
    dead = sum(row["dead"] for row in queues)
    hints = []
    unserved = [row for row in queues if row["ready"] and not row["served"]]
    for shell, start in ((True, "worker start"), (False, "worker start MODULE:APP")):
        if names := [row["queue"] for row in unserved if row["shell"] is shell]:
            hints.append(f"no worker serves {', '.join(names)}; run `penstock {start}`")
    if dead:
        hints.append(f"{dead} dead {'letter' if dead == 1 else 'letters'}; run `penstock dlq list`")
    if any(row["scope_paused"] for row in queues):
        hints.append("the scope is paused; resume it with POST /v1/scopes/NAME/resume")
    elif paused := [row["queue"] for row in queues if row["state"] == "paused"]:
        hints.append(f"paused: {', '.join(paused)}; run `penstock queue resume`")
    if found["truncated"]:
        hints.append(f"+ only the last {MAX_ENDED_COUNTED:,} ended messages are counted")
    return hints


@command(group, "agents")
def agents(session: CommandContext) -> None:
    """List background agents, with their intervals and last work.

    Every worker and server runs all agents. Each piece of work is done once.

    \b
    penstock agents
    penstock agents --json
    """

    async def work(store: Store) -> tuple[dict[str, AgentRun], Moment]:
        runs = {run.name: run for run in await store.agent_runs()}
        return runs, await store.now()

    runs, now = session.run_on_store(work)
    found = [(name, every, runs.get(name, NEVER_RUN)) for name, every in AGENTS.items()]
    session.print_table(
        ("agent", "every", "last work", "by", "result"),
        [
            (name, every, format_ago(run.at or None, now), run.by[:12], run.result)
            for name, every, run in found
        ],
        "no agents",
        (
            {"agent": name, "every": every, "last_work": format_time(run.at or None),
             "by": run.by or None, "result": run.result}
            for name, every, run in found
        ),
    )  # fmt: skip


COMMANDS = {"status": status, "agents": agents}
