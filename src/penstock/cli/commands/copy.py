"""The command `copy`, which moves a store to another one."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import click

from penstock import stores
from penstock.broker.copy_store import CopyPlan, copy_store, plan_copy
from penstock.broker.liveness import is_gone
from penstock.cli.context import CommandContext, command, locate_store, make_audit_entry
from penstock.cli.output import print_json, print_table
from penstock.errors import InvalidInput, InvalidState, StoreUnusable
from penstock.model.message import PLACE_STATES
from penstock.rules.plurals import format_count
from penstock.store import Store

group = click.Group()
PLACE_NAMES = {**PLACE_STATES, "ended": "ended"}
REPORT_INTERVAL_S = 2.0


@command(group, "copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Check both stores and show what would be copied.")
@click.option(
    "--release-claimed", is_flag=True, help="Copy claimed messages as ready: they may run again."
)
def copy(
    session: CommandContext, source: str, target: str, dry_run: bool, release_claimed: bool
) -> None:
    """Copy a store to a new, empty one of any kind.

    Messages keep their ids, states, counters, keys, names, results and history; finished ones
    stay finished, and those that wait keep their steps and signals. Queues with their settings,
    schedules, rules, schemas, subscriptions, alerts, patterns, workflows, views, API keys, roles
    and trusts are copied too. Stop workers and publishers first. Until the copy is complete, the
    target is paused. After an interruption, run the same command again: it resumes.

    \b
    penstock copy sqlite:///penstock.db postgresql://penstock@db.example/queue --dry-run
    penstock copy sqlite:///penstock.db postgresql://penstock@db.example/queue
    """
    if session.url_option is not None:
        raise click.UsageError("copy takes two URLs and does not accept --url.")
    began = time.monotonic()
    plan = asyncio.run(run_copy(session, source, target, dry_run, release_claimed))
    if session.as_json:
        print_json(describe_plan(plan) | {"dry_run": dry_run})
        return
    print_plan(plan)
    resumes = "would resume, " if plan.resumes else ""
    messages = format_count(plan.messages, "message")
    if dry_run:
        print(f"\n{resumes}would copy {messages} to {locate_store(target)}")
        if plan.claimed:
            print(f"{plan.claimed} are claimed: wait for them, or use --release-claimed")
    else:
        took = time.monotonic() - began
        print(f"\ncopied {messages} in {took:.1f} s; the stores agree")


async def run_copy(
    session: CommandContext, source: str, target: str, dry_run: bool, release_claimed: bool
) -> CopyPlan:
    for url in (source, target):
        if url.startswith(("http:", "https:")):
            raise InvalidInput("copy needs the stores themselves, not servers; use their URLs")
    if not await stores.exists(source):
        raise StoreUnusable(f"no store at {locate_store(source)!r}")
    async with AsyncExitStack() as handles:
        old = await handles.enter_async_context(await stores.open(source))
        new = None
        if not dry_run or await stores.exists(target):
            new = await handles.enter_async_context(await stores.open(target))
        await refuse_workers(old, "source")
        if dry_run or new is None:
            return await plan_copy(old, new)
        await refuse_workers(new, "target")
        show = make_progress(session.as_json)
        plan = await copy_store(old, new, release_claimed=release_claimed, report=show)
        await new.record([make_audit_entry(session.user, session.scope)])
        return plan


async def refuse_workers(store: Store, role: str) -> None:
    now = await store.now()
    if count := sum(not is_gone(worker, now) for worker in await store.workers()):
        raise InvalidState(
            f"{count} {'worker serves' if count == 1 else 'workers serve'} the {role};"
            " run `penstock worker stop` first"
        )


def make_progress(quiet: bool) -> Callable[[int], None]:
    """Report the count on stderr from time to time, if that is a terminal."""
    last = time.monotonic()

    def show(count: int) -> None:
        nonlocal last
        if quiet or not sys.stderr.isatty() or time.monotonic() < last + REPORT_INTERVAL_S:
            return
        last = time.monotonic()
        print(f"{format_count(count, 'message')} copied", file=sys.stderr)

    return show


def list_counts(plan: CopyPlan) -> list[tuple[str, dict[str, int]]]:
    """Return the counts of each queue that has messages, or that users created."""
    found = []
    for queue in plan.queues:
        counts = {
            name: plan.counts.get((queue.id, place), 0) for place, name in PLACE_NAMES.items()
        }
        if any(counts.values()) or not queue.system:
            scope = queue.scope
            prefix = "" if scope.name == "default" else f"{scope.name}/"
            found.append((f"{prefix}{queue.name}", counts))
    return found


def print_plan(plan: CopyPlan) -> None:
    rows = [(name, *counts.values()) for name, counts in list_counts(plan)]
    print_table(("queue", *PLACE_NAMES.values()), rows, "no queues")


def describe_plan(plan: CopyPlan) -> dict[str, Any]:
    return {
        "messages": plan.messages,
        "schedules": plan.schedules,
        "resumes": plan.resumes,
        "queues": [{"queue": name, **counts} for name, counts in list_counts(plan)],
    }


COMMANDS = {"copy": copy}
