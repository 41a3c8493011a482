"""Starts and follows bulk actions: counts first, asks, and shows their progress."""

import asyncio
import sys
from collections.abc import Awaitable
from time import monotonic
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from penstock.agents.bulk_runner import BulkRunner
from penstock.artifacts.service import ArtifactService
from penstock.broker.bulk.reader import make_name
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.cli.context import CommandContext
from penstock.cli.output import format_time, print_details, print_json
from penstock.model.bulk import BulkAction, BulkActor, BulkState, BulkVerb
from penstock.model.changes import Horizon
from penstock.rules.bulk import UNDERWAY
from penstock.rules.plurals import format_count
from penstock.runner import make_identity
from penstock.store import Store
from penstock.wire.bulk import make_bulk_view

# More messages than this are only changed after a question.
MAX_UNASKED = 1_000
POLL_INTERVAL_S = 0.5
# The rate of an action that was followed for less is not known.
MIN_RATED_S = 0.5
DONE_WORDS = {
    BulkVerb.REDRIVE: "redriven",
    BulkVerb.CANCEL: "cancelled",
    BulkVerb.PURGE: "purged",
    BulkVerb.MOVE: "moved",
    BulkVerb.REPRIORITISE: "reprioritised",
}
INTERRUPTED = 130
RATE_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0}


class RateType(click.ParamType[float]):
    """Messages a second, such as 50, 50/s, 3000/m or 10/h."""

    name = "rate"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        number, _, unit = str(value).partition("/")
        try:
            rate = float(number) / RATE_UNITS[unit or "s"]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is not a rate; write it like 50/s, 600/m or 10/h", param, ctx)
        if not 0 < rate < float("inf"):
            self.fail(f"rate {value!r} must be above 0", param, ctx)
        return rate


RATE = RateType()


class BulkOptions(Struct, frozen=True, kw_only=True):
    """The options of a bulk command."""

    verb: BulkVerb
    filter: str
    queue: str | None = None
    to_scope: str | None = None
    priority: int | None = None
    rate: float | None = None
    dry_run: bool = False
    yes: bool = False
    detach: bool = False
    name: str | None = None


def add_bulk_options(call: Any) -> Any:
    """Add the options of commands that act on all messages of a filter."""
    for option in (
        click.option("--name", help="With --filter, a name for the bulk action."),
        click.option(
            "--detach", is_flag=True, help="With --filter, do not wait until the bulk action ends."
        ),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="Only print what would be done."),
        click.option("--rate", type=RATE, metavar="RATE", help="Maximum rate, such as 50/s."),
        click.option(
            "--filter",
            metavar="FILTER",
            help="Select messages by a filter, such as 'state:dead age>10m error:timeout'.",
        ),
    ):
        call = option(call)
    return call


def run_bulk(session: CommandContext, options: BulkOptions) -> None:
    """Count what matches, ask if it is much, and run the action until it ends."""
    counted = session.run(lambda broker: count(session, broker, options))
    if options.dry_run:
        print_count(session, counted)
        return
    if not counted.counts.done:
        # An action that finds nothing is not worth keeping.
        report(session, replace(counted, request=replace(counted.request, dry_run=False)))
        return
    if counted.counts.done > MAX_UNASKED and not options.yes:
        word = DONE_WORDS[options.verb]
        question = f"{format_count(counted.counts.done, 'message')} will be {word}. Continue?"
        click.confirm(question, abort=True, err=True)
    if options.detach:
        action = session.run(lambda broker: start(session, broker, options, counted.as_of))
        print_action(session, action)
        return

    def begin(broker: Broker) -> Awaitable[BulkAction]:
        return start(session, broker, options, counted.as_of)

    follow(session, begin, counted.counts.done)


async def start(
    session: CommandContext,
    broker: Broker,
    options: BulkOptions,
    as_of: Horizon | None = None,
    *,
    dry_run: bool = False,
) -> BulkAction:
    """Starts the action; with `as_of`, on no more messages than were counted then."""
    bulk = broker.limit_bulk(BulkActor(session.user))
    return await bulk.start(
        options.verb,
        filter=options.filter,
        queue=options.queue,
        to_scope=options.to_scope,
        priority=options.priority,
        rate=options.rate,
        dry_run=dry_run,
        name=options.name,
        as_of=as_of,
        scope=session.scope,
    )


async def count(session: CommandContext, broker: Broker, options: BulkOptions) -> BulkAction:
    action = await start(session, broker, options, dry_run=True)
    return await Follower(broker, action, None, hidden=True).run() if action.id else action


def follow(session: CommandContext, begin: Any, total: int | None) -> None:
    """Show the progress of an action until it ends. Ctrl-C leaves it running."""
    followed: list[BulkAction] = []

    async def work(broker: Broker) -> BulkAction:
        followed.append(await begin(broker))
        return await Follower(broker, followed[0], total, hidden=session.as_json).run()

    try:
        action = session.run(work)
    except KeyboardInterrupt:
        if not followed:
            raise
        id = followed[0].id
        click.echo(
            f"\nbulk action {id} is still running: a server or worker continues it;"
            f" `penstock bulk attach {id}` follows it, `penstock bulk abort {id}` stops it",
            err=True,
        )
        raise SystemExit(INTERRUPTED) from None
    report(session, action)


class CountLine:
    """Shows how much was done, and how fast, of an action whose total is not known."""

    def __init__(self, label: str, *, hidden: bool) -> None:
        self.label = label
        self.hidden = hidden
        self.done = 0
        self.began_at = monotonic()

    def __enter__(self) -> "CountLine":
        self.update(0)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.hidden:
            click.echo(err=True)

    def update(self, count: int) -> None:
        self.done += count
        rate = self.done / max(monotonic() - self.began_at, MIN_RATED_S)
        if not self.hidden:
            click.echo(f"\r{self.label}  {self.done:,} done, {rate:,.0f}/s  ", nl=False, err=True)


class Follower:
    """Follows an action. It does the work itself unless another process does."""

    def __init__(
        self, broker: Broker, action: BulkAction, total: int | None, *, hidden: bool
    ) -> None:
        self.broker = broker
        self.action = action
        self.total = total
        self.hidden = hidden or not sys.stderr.isatty()
        (self.runner,) = broker.make_agents(make_runner)

    async def run(self) -> BulkAction:
        name = make_name(self.action.tenant, self.action.id)
        try:
            with self.make_progress() as bar:
                while self.action.state in UNDERWAY:
                    wait = await self.runner.advance(name)
                    await self.look(bar)
                    if wait:
                        await asyncio.sleep(min(wait, POLL_INTERVAL_S))
        finally:
            # Another process need not wait until this one is taken for dead.
            await self.runner.release(name)
        return self.action

    def make_progress(self) -> Any:
        label = f"bulk {self.action.id}"
        if not self.total:
            return CountLine(label, hidden=self.hidden)
        return click.progressbar(
            length=self.total, label=label, file=sys.stderr, hidden=self.hidden
        )

    async def look(self, bar: Any) -> None:
        before = self.action.counts.done
        self.action = await self.broker.bulk.get(self.action.id)
        bar.update(self.action.counts.done - before)


def print_count(session: CommandContext, action: BulkAction) -> None:
    if session.as_json:
        print_json(make_bulk_view(action))
        return
    word = DONE_WORDS[action.request.verb]
    done = f"would be {word}" if action.request.dry_run else word
    print(f"{action.counts.done} {done}{format_skipped(action)}")


def format_skipped(action: BulkAction) -> str:
    reasons = [f"{count} {reason}" for reason, count in sorted(action.counts.skipped.items())]
    return f"; skipped: {', '.join(reasons)}" if reasons else ""


def report(session: CommandContext, action: BulkAction) -> None:
    """Print the end of an action. It fails unless all was done."""
    print_count(session, action)
    if not session.as_json:
        for each in action.counts.failures:
            click.echo(f"penstock: message {each.id} failed: {each.code}", err=True)
        if action.state is not BulkState.DONE:
            reason = "" if action.reason is None else f": {action.reason}"
            click.echo(f"penstock: bulk action {action.id} is {action.state}{reason}", err=True)
    if action.counts.failed or action.state is not BulkState.DONE:
        raise SystemExit(1)


def print_action(session: CommandContext, action: BulkAction) -> None:
    """Print an action as it is now."""
    if session.as_json:
        print_json(make_bulk_view(action))
        return
    request, counts = action.request, action.counts
    print_details(
        [
            ("bulk action", action.id),
            ("name", request.name),
            ("verb", request.verb),
            ("filter", request.filter),
            ("to queue", request.queue),
            ("priority", request.priority),
            ("state", action.state),
            ("reason", action.reason),
            ("would be done" if request.dry_run else "done", counts.done),
            ("skipped", format_skipped(action).removeprefix("; skipped: ") or None),
            ("failed", counts.failed or None),
            ("rate", None if request.rate is None else f"{request.rate:g}/s"),
            ("by", action.actor.subject),
            ("started", format_time(action.created_at)),
            ("ended", None if action.ended_at is None else format_time(action.ended_at)),
        ]
    )
    for each in counts.failures:
        print(f"  message {each.id}: {each.code}")


def make_runner(store: Store, directory: QueueCache, _: ArtifactService | None) -> list[BulkRunner]:
    return [BulkRunner(store, directory, make_identity())]
