"""Commands for the store itself: `migrate`, `doctor`, `backup`, `bench`."""

import asyncio
import sys
from pathlib import Path

import click

from penstock import stores
from penstock.artifacts.storage import default_location, open_storage
from penstock.broker.metrics.rows import check_limits
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.cli.settings import load_settings
from penstock.errors import InvalidInput, StoreUnusable
from penstock.store import Check, Store

group = click.Group()
NOTHING = "nothing to do"


def set_up(reference: str, url: str | None) -> list[str]:
    """Migrate the store of an app, unless a server does, and set up what the app declares."""
    from penstock.app.discovery import load

    app = load(reference)
    if url is not None:
        app.use(url)
    remote = app.url.startswith(("http://", "https://"))
    steps = [] if remote else asyncio.run(stores.migrate(app.url))
    try:
        return [*steps, *app.setup()]
    finally:
        app.close()


async def examine(store: Store) -> list[Check]:
    return await store.examine()


@command(group, "migrate")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--plan", is_flag=True, help="Print the steps without running them.")
def migrate(session: CommandContext, app: str | None, plan: bool) -> None:
    """Create the store, or migrate its schema.

    With MODULE:APP also creates the queues that the app declares, applies changed settings, and
    saves its schedules. Workers can keep running. Opening a new store or a SQLite file migrates
    it too.

    \b
    penstock migrate
    penstock migrate shop.tasks:app
    penstock migrate --plan --url postgresql://penstock@db.example/queue
    """
    if app is not None and plan:
        raise click.UsageError("--plan shows migrations only; leave out MODULE:APP.")
    if app is not None:
        steps = set_up(app, session.url_option)
        print_json({"done": steps}) if session.as_json else print("\n".join(steps or [NOTHING]))
        return
    steps = asyncio.run(stores.migrate(session.url, plan=plan))
    if plan:
        print_json({"to_do": steps}) if session.as_json else print("\n".join(steps or [NOTHING]))
        return
    checks = {check.name: check.text for check in session.run_on_store(examine, create=True)}
    session.print_result(
        {"done": steps, "schema": checks["schema"]}, "\n".join([*steps, checks["schema"]])
    )


@command(group, "doctor")
def doctor(session: CommandContext) -> None:
    """Check the health of the store.

    Checks durability, schema, integrity, disk space, leases, exports, dead letters and artifact
    storage. The exit code is 1 if something needs attention.

    \b
    penstock doctor
    penstock doctor --json
    """
    artifacts = load_settings({"url": session.url_option}).artifacts or default_location(
        session.url
    )

    async def work(store: Store) -> list[Check]:
        storage = open_storage(artifacts, await store.secret())
        return [*await store.examine(), await check_limits(store), storage.examine()]

    checks = session.run_on_store(work)
    if session.as_json:
        print_json_lines(checks)
    else:
        rows = [("ok" if check.ok else "WARN", check.name, check.text) for check in checks]
        print_table(("", "check", "result"), rows, "nothing to check")
    if not all(check.ok for check in checks):
        sys.exit(1)


@command(group, "backup")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def backup(session: CommandContext, target: Path) -> None:
    """Back up a SQLite store, even while it is in use.

    To restore, stop all workers and replace the store with the backup. For a server database, use
    its own tools, such as pg_dump.

    \b
    penstock backup backups/monday.db
    """
    if target.exists():
        raise InvalidInput(f"{str(target)!r} already exists; choose another name")
    if not target.parent.is_dir():
        raise InvalidInput(f"directory {str(target.parent)!r} does not exist; create it first")
    try:
        session.run_on_store(lambda store: store.backup(str(target)))
    except OSError as error:
        raise StoreUnusable(f"cannot write {str(target)!r}: {error.strerror}") from None
    size = target.stat().st_size
    session.print_result({"file": str(target), "bytes": size}, f"{target} ({size} bytes)")


@command(group, "bench")
@click.option("--messages", type=click.IntRange(100, 10_000_000), default=20_000,
              show_default=True, help="Number of messages.")  # fmt: skip
def bench(session: CommandContext, messages: int) -> None:
    """Measure the throughput of SQLite on this machine.

    Measures single publishes, batch publishes, and claims with completions, in a temporary file.

    \b
    penstock bench
    penstock bench --messages 100000 --json
    """
    from penstock.cli.bench import measure

    if session.url_option is not None:
        raise InvalidInput("bench uses a temporary SQLite file and does not accept --url")
    measured = measure(messages)
    if session.as_json:
        print_json(measured)
    else:
        print_table(("operation", "per second"), list(measured.items()), "nothing measured")


COMMANDS = {"migrate": migrate, "doctor": doctor, "backup": backup, "bench": bench}
