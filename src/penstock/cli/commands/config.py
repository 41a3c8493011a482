"""The `config` commands: common queue settings by short names, and program settings."""

from typing import Any

import click
import msgspec
from msgspec.structs import replace

from penstock.artifacts.storage import default_location
from penstock.broker.local import Broker
from penstock.cli.commands.jobs import SHELL_LEASE_S, ensure_shell_queue
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import SHELL_QUEUE
from penstock.cli.output import print_details, print_json, print_table
from penstock.cli.settings import SettingSource, resolve
from penstock.errors import InvalidInput, NotFound
from penstock.model.settings import QueueSettings, get_preset
from penstock.rules.durations import parse_seconds
from penstock.stores.urls import redact_url as without_password


@click.group("config")
def config() -> None:
    """Show and change settings.

    `get` and `set` read and change common settings of one queue, by default the shell queue.
    `penstock queue set` changes every setting. `show` lists the settings of the program, such as
    its URL and port.

    \b
    penstock config show
    penstock config get
    penstock config set max-retries 3
    """


def read(settings: QueueSettings) -> dict[str, Any]:
    return {
        "max-retries": settings.max_attempts,
        "backoff-base": settings.backoff.factor,
        "backoff-max": settings.backoff.max,
        "poll-interval": settings.poll_interval,
        "lease": settings.lease,
        "max-depth": settings.max_depth,
        "retention": settings.retention,
    }


def find_setting(text: str) -> str:
    """Return the name of a setting. Underscores are accepted for dashes."""
    name, names = text.replace("_", "-"), read(QueueSettings())
    if name not in names:
        raise InvalidInput(f"unknown setting {text!r}; valid settings are {', '.join(names)}")
    return name


def make_changes(name: str, text: str) -> dict[str, Any]:
    if name in ("lease", "retention", "backoff-max"):
        value: Any = parse_seconds(text)
    else:
        value = parse_number(name, text)
    match name:
        case "max-retries":
            return {"max_attempts": value, "max_deliveries": None}
        case "backoff-base":
            return {"backoff": {"initial": value, "factor": value}}
        case "backoff-max":
            return {"backoff": {"max": value}}
    return {name.replace("-", "_"): value}


def parse_number(name: str, text: str) -> Any:
    """Parse a number. `null` removes a limit."""
    try:
        return msgspec.json.decode(text, type=int | float | None)
    except msgspec.DecodeError:
        raise InvalidInput(f"{name}: {text!r} is not a number") from None


@command(config, "get")
@click.argument("name", required=False)
@click.option("--queue", default=SHELL_QUEUE, show_default=True, shell_complete=complete_queue,
              help="Queue to configure.")  # fmt: skip
def get(session: CommandContext, name: str | None, queue: str) -> None:
    """Show one setting of a queue, or all.

    \b
    penstock config get
    penstock config get max-retries
    """
    key = None if name is None else find_setting(name)

    async def work(broker: Broker) -> QueueSettings:
        try:
            return (await broker.admin.queue(queue, scope=session.scope)).settings
        except NotFound:
            if queue != SHELL_QUEUE:
                raise
            # The queue is created with this preset on first use.
            return replace(get_preset("queuectl"), lease=SHELL_LEASE_S)

    found = read(session.run(work))
    if session.as_json:
        print_json(found if key is None else {name: found[key]})
    elif key is not None:
        print(format_setting(found[key]))
    else:
        print(f"settings of queue {queue}")
        print_details((f"  {key}", format_setting(value)) for key, value in found.items())


def format_setting(value: Any) -> str:
    return "none" if value is None else str(value)


@command(config, "set")
@click.argument("name")
@click.argument("value")
@click.option("--queue", default=SHELL_QUEUE, show_default=True, shell_complete=complete_queue,
              help="Queue to configure.")  # fmt: skip
def set_(session: CommandContext, name: str, value: str, queue: str) -> None:
    """Change a setting of one queue. Running workers apply it within a second.

    \b
    penstock config set max-retries 3
    penstock config set backoff-base 3
    penstock config set retention 30d
    """
    key = find_setting(name)
    changed = make_changes(key, value)

    async def work(broker: Broker) -> dict[str, Any]:
        if queue == SHELL_QUEUE:
            await ensure_shell_queue(broker, queue, session.scope)
        try:
            made = await broker.admin.set_queue(queue, scope=session.scope, **changed)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        return read(made.settings)

    found = session.run(work, create=True)
    session.print_result(
        {name: found[key]}, f"{name} is now {format_setting(found[key])} in queue {queue}"
    )


@command(config, "show")
def show(session: CommandContext) -> None:
    """Show program settings and where each comes from.

    A setting comes from an option, the environment, a file or its default. The file is
    penstock.toml, or [tool.penstock] in pyproject.toml, in the working directory. Passwords in
    URLs are not shown.

    \b
    penstock config show
    PENSTOCK_PORT=8080 penstock config show --json
    """
    found = resolve({"url": session.url_option})
    if found["artifacts"].value is None:
        found["artifacts"] = SettingSource(default_location(found["url"].value), "default")
    shown = {name: (hide_secret(name, each.value), each.source) for name, each in found.items()}
    if session.as_json:
        print_json(
            {name: {"value": value, "from": source} for name, (value, source) in shown.items()}
        )
    else:
        rows = [(name.replace("_", "-"), value, source) for name, (value, source) in shown.items()]
        print_table(("setting", "value", "from"), rows, "")


def hide_secret(name: str, value: Any) -> Any:
    if name.endswith("secret") and value is not None:
        return "(set)"
    if isinstance(value, tuple):
        return ",".join(value)
    return without_password(value) if name == "url" else value


COMMANDS = {"config": config}
