"""The `queue` commands."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.cli.commands.status import count_by_queue
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.options import limit_option
from penstock.cli.output import print_details, print_json
from penstock.errors import InvalidInput
from penstock.model.message import PLACE_STATES
from penstock.model.queue import Queue, QueueState
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Pruned
from penstock.rules.durations import parse_seconds
from penstock.rules.plurals import format_count


@click.group("queue")
def queue() -> None:
    """Manage queues and their settings.

    \b
    penstock queue create mail max_attempts=3
    penstock queue pause mail
    """


def parse_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE words. A dot separates nested names: backoff.initial=5."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidInput(f"setting {word!r} must have the form name=value")
        outer, dot, inner = name.replace("-", "_").partition(".")
        if outer not in (names := QueueSettings.__struct_fields__):
            raise InvalidInput(f"unknown setting {name!r}; valid settings are {', '.join(names)}")
        if dot:
            found.setdefault(outer, {})[inner] = parse_value(text)
        elif outer == "mask":
            found[outer] = [entry for entry in text.split(",") if entry]
        else:
            found[outer] = parse_value(text)
    return found


def parse_value(text: str) -> Any:
    """Decode JSON or a duration. Anything else is a string."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    with suppress(InvalidInput):
        return parse_seconds(text)
    return text


def describe_queue(found: Queue) -> dict[str, Any]:
    return {
        "name": found.name,
        "scope": found.scope.name,
        "state": found.state.value,
        "scope_paused": found.scope.paused,
        "settings": msgspec.to_builtins(found.settings),
    }


def print_queue(session: CommandContext, found: Queue) -> None:
    view = describe_queue(found)
    if session.as_json:
        print_json(view)
        return
    paused = ", and its scope is paused" if view["scope_paused"] else ""
    print(f"{view['name']}: {view['state']}{paused}")
    print_details((f"  {name}", format_setting(value)) for name, value in view["settings"].items())


def format_setting(value: Any) -> str:
    """Format a value as users type it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@command(queue, "create")
@click.argument("name")
@click.option(
    "--preset",
    default="default",
    show_default=True,
    help="Base settings: default, scaiqueue, relay, codeq, faststream or queuectl.",
)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
def create(session: CommandContext, name: str, preset: str, settings: tuple[str, ...]) -> None:
    """Create a queue.

    \b
    penstock queue create mail max_attempts=3 lease=60
    penstock queue create tasks --preset codeq backoff.initial=5
    """
    given = {"preset_name": preset, "scope": session.scope, **parse_settings(settings)}
    made = session.run(lambda broker: broker.admin.create_queue(name, **given), create=True)
    print_queue(session, made)


@command(queue, "list")
def list_(session: CommandContext) -> None:
    """List queues with message counts.

    \b
    penstock queue list
    penstock queue list --json | jq .settings.max_attempts
    """
    found = session.run(lambda broker: count_by_queue(broker, session.scope))
    session.print_table(
        ("queue", "state", "ordering", "attempts", "lease", *PLACE_STATES.values()),
        [
            [each.name, each.serving_state.value, each.settings.ordering,
             each.settings.max_attempts, f"{each.settings.lease:g}s",
             *(counts[name] for name in PLACE_STATES.values())]
            for each, counts in found
        ],
        "no queues",
        (describe_queue(each) | {"counts": counts} for each, counts in found),
    )  # fmt: skip


@command(queue, "show")
@click.argument("name", shell_complete=complete_queue)
def show(session: CommandContext, name: str) -> None:
    """Show the state and settings of a queue.

    \b
    penstock queue show mail
    """
    print_queue(session, session.run(lambda broker: broker.admin.queue(name, scope=session.scope)))


@command(queue, "set")
@click.argument("name", shell_complete=complete_queue)
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_(session: CommandContext, name: str, settings: tuple[str, ...]) -> None:
    """Change settings of a queue. Running workers apply them within a second.

    \b
    penstock queue set mail max_attempts=10 backoff.max=600
    """
    given = {"scope": session.scope, **parse_settings(settings)}
    print_queue(session, session.run(lambda broker: broker.admin.set_queue(name, **given)))


def add_state_command(verb: str, state: QueueState, text: str) -> Callable[..., Any]:
    def call(session: CommandContext, queues: tuple[str, ...]) -> None:
        async def work(broker: Broker) -> list[Queue]:
            for name in queues:
                await broker.admin.queue(name, scope=session.scope)
            return [
                await broker.admin.set_state(name, state, scope=session.scope) for name in queues
            ]

        for found in session.run(work):
            if session.as_json:
                print_json(describe_queue(found))
            else:
                print(f"{found.name} is {found.state.value}")

    call.__doc__ = f"{text}\n\n\b\npenstock queue {verb} mail\npenstock queue {verb} mail images"
    names = click.argument("queues", nargs=-1, required=True, shell_complete=complete_queue)
    made: Callable[..., Any] = command(queue, verb)(names(call))
    return made


add_state_command(
    "pause", QueueState.PAUSED,
    "Pause a queue: no claims. Publishes are accepted unless pause_accepts is off.",
)  # fmt: skip
add_state_command("resume", QueueState.ACTIVE, "Resume a paused, draining or archived queue.")
add_state_command(
    "drain", QueueState.DRAINING, "Drain a queue: claims continue, publishes are refused."
)
add_state_command("archive", QueueState.ARCHIVED, "Archive a queue: no claims and no publishes.")


@command(queue, "purge")
@click.argument("name", shell_complete=complete_queue)
@click.option(
    "--state",
    "states",
    type=click.Choice(["ready", "scheduled", "dead"]),
    multiple=True,
    help="State of the messages. Repeatable.  [default: ready, scheduled]",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def purge(session: CommandContext, name: str, states: tuple[str, ...], yes: bool) -> None:
    """Cancel the waiting messages of a queue.

    They remain visible until their retention period ends. Running messages are not affected.

    \b
    penstock queue purge mail
    penstock queue purge mail --state scheduled --yes
    """
    places = states or ("ready", "scheduled")

    async def count(broker: Broker) -> int:
        queue = await broker.admin.queue(name, scope=session.scope)
        depths = await broker.depths()
        return sum(depths.get((queue.id, place), 0) for place in places)

    async def work(broker: Broker) -> int:
        done = 0
        while ended := await broker.admin.purge(name, *places, scope=session.scope):
            done += ended
        return done

    if not yes and (waiting := session.run(count)):
        click.confirm(f"Cancel {format_count(waiting, 'message')}?", abort=True, err=True)
    purged = session.run(work)
    session.print_result({"purged": purged}, f"{purged} purged")


@command(queue, "delete")
@click.argument("name", shell_complete=complete_queue)
@click.option("--force", is_flag=True, help="Cancel unfinished messages first.")
def delete(session: CommandContext, name: str, force: bool) -> None:
    """Delete a queue that has no unfinished messages.

    \b
    penstock queue delete mail
    penstock queue delete mail --force
    """
    session.run(lambda broker: broker.admin.delete_queue(name, force=force, scope=session.scope))
    session.print_result({"deleted": name}, f"queue {name} deleted")


@command(queue, "prune")
@click.argument("name")
@click.option("--older-than", default="0s", help="Minimum time since their end, such as 30d.")
@limit_option("messages", 1_000, 1_000_000)
def prune(session: CommandContext, name: str, older_than: str, limit: int) -> None:
    """Delete finished messages before their retention is over, the oldest first.

    Dead letters are not finished: see `penstock dlq purge`. Messages that an export has not read
    yet are kept.

    \b
    penstock queue prune mail --older-than 30d
    penstock queue prune mail --limit 100000
    """
    age = parse_seconds(older_than)

    async def work(broker: Broker) -> Pruned:
        before = await broker.now() - int(age * 1_000_000)
        return await broker.admin.prune(
            name, before=max(0, before), limit=limit, scope=session.scope
        )

    done = session.run(work)
    session.print_result(
        {"queue": name, "pruned": done.count, "more": done.more},
        f"{done.count} pruned{', and there are more' if done.more else ''}",
    )


COMMANDS = {"queue": queue}
