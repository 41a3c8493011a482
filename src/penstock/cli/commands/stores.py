"""The store itself: migrate, back up, examine, measure."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock import stores
from penstock.artifacts.storage import default_location, open_storage
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.cli.settings import load_settings
from penstock.errors import InvalidInput, StoreUnusable
from penstock.store import Check

group = click.Group()
NOTHING = "nothing to do"


async def examine(broker: Broker) -> list[Check]:
    return await broker.store.examine()


@command(group, "migrate")
@click.option("--plan", is_flag=True, help="Say what would be done, and do nothing.")
def migrate(session: CommandContext, plan: bool) -> None:
    """Makes the store, or brings its schema up to date.

    While workers go on. Opening a new store, or a file, does so too; this says it.

    \b
    penstock migrate
    penstock migrate --plan --url postgresql://penstock@db.example/queue
    """
    steps = asyncio.run(stores.migrate(session.url, plan=plan))
    if plan:
        print_json({"to_do": steps}) if session.as_json else print("\n".join(steps or [NOTHING]))
        return
    checks = {check.name: check.text for check in session.run(examine, "create")}
    if session.as_json:
        print_json({"done": steps, "schema": checks["schema"]})
    else:
        print("\n".join([*steps, checks["schema"]]))


@command(group, "doctor")
def doctor(session: CommandContext) -> None:
    """Examines the store.

    Durability, schema, integrity, room, leases, exports, dead letters, and the place of artifacts.
    Exit code 1 if something needs attention.

    \b
    penstock doctor
    penstock doctor --json
    """
    artifacts = load_settings({"url": session.said}).artifacts or default_location(session.url)

    async def work(broker: Broker) -> list[Check]:
        place = open_storage(artifacts, await broker.store.secret())
        return [*await broker.store.examine(), place.examine()]

    checks = session.run(work)
    if session.as_json:
        print_json_lines(msgspec.to_builtins(check) for check in checks)
    else:
        rows = [("ok" if check.well else "LOOK", check.name, check.text) for check in checks]
        print_table(("", "check", "found"), rows, "nothing to check")
    if not all(check.well for check in checks):
        sys.exit(1)


@command(group, "backup")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def backup(session: CommandContext, target: Path) -> None:
    """Copies a SQLite store to a new file, in use or not.

    To restore it, stop the workers and put it in the place of the old one. For PostgreSQL there is
    pg_dump.

    \b
    penstock backup backups/monday.db
    """
    if target.exists():
        raise InvalidInput(f"{str(target)!r} exists already; choose another name")
    if not target.parent.is_dir():
        raise InvalidInput(f"no directory {str(target.parent)!r}; make it first")

    async def work(broker: Broker) -> None:
        await broker.store.backup(str(target))

    try:
        session.run(work)
    except OSError as error:
        raise StoreUnusable(f"cannot write {str(target)!r}: {error.strerror}") from None
    size = target.stat().st_size
    told: dict[str, Any] = {"file": str(target), "bytes": size}
    print_json(told) if session.as_json else print(f"{target} ({size} bytes)")


@command(group, "bench")
@click.option("--messages", type=click.IntRange(100, 10_000_000), default=20_000,
              show_default=True, help="How many to push through.")  # fmt: skip
def bench(session: CommandContext, messages: int) -> None:
    """Measures this machine, on a temporary SQLite file.

    Publishing one by one and in batches, and claiming and completing. No store of yours is used.

    \b
    penstock bench
    penstock bench --messages 100000 --json
    """
    from penstock.cli.bench import measure

    if session.said is not None:
        raise InvalidInput("bench measures a temporary SQLite file, and takes no --url")
    measured = measure(messages)
    if session.as_json:
        print_json(measured)
    else:
        print_table(("measure", "a second"), list(measured.items()), "nothing measured")


COMMANDS = {"migrate": migrate, "doctor": doctor, "backup": backup, "bench": bench}
