"""The few settings people change most, by their short names, on the shell queue or another."""

from typing import Any

import click
import msgspec

from penstock.artifacts.storage import default_location
from penstock.broker.local import Broker
from penstock.cli.commands.jobs import ensure_shell_queue
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
    """Settings of the shell queue, and of this program.

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
        "lease": settings.lease,
        "max-depth": settings.max_depth,
        "retention": settings.retention,
    }


def check_known(name: str) -> str:
    if name not in (names := read(QueueSettings())):
        raise InvalidInput(f"no setting named {name!r}; there are {', '.join(names)}")
    return name


def make_changes(name: str, text: str) -> dict[str, Any]:
    if check_known(name) in ("lease", "retention", "backoff-max"):
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
    """`null` takes a limit away."""
    try:
        return msgspec.json.decode(text, type=int | float | None)
    except msgspec.DecodeError:
        raise InvalidInput(f"{name}: {text!r} is not a number") from None


@command(config, "get")
@click.argument("name", required=False)
@click.option("--queue", default=SHELL_QUEUE, show_default=True, help="Of this queue.")
def get(session: CommandContext, name: str | None, queue: str) -> None:
    """Shows one setting, or all.

    \b
    penstock config get
    penstock config get max-retries
    """
    if name is not None:
        check_known(name)

    async def work(broker: Broker) -> QueueSettings:
        try:
            return (await broker.admin.queue(queue, scope=session.scope)).settings
        except NotFound:
            if queue != SHELL_QUEUE:
                raise
            # What it will have when it is made.
            return get_preset("queuectl")

    found = read(session.run(work, "empty"))
    if session.as_json:
        print_json(found if name is None else {name: found[name]})
    elif name is not None:
        print(found[name])
    else:
        print_details(
            (key, "none" if value is None else str(value)) for key, value in found.items()
        )


@command(config, "set")
@click.argument("name")
@click.argument("value")
@click.option("--queue", default=SHELL_QUEUE, show_default=True, help="Of this queue.")
def set_(session: CommandContext, name: str, value: str, queue: str) -> None:
    """Changes a setting; running workers use it within a second.

    \b
    penstock config set max-retries 3
    penstock config set backoff-base 3
    penstock config set retention 30d
    """
    changed = make_changes(name, value)

    async def work(broker: Broker) -> dict[str, Any]:
        if queue == SHELL_QUEUE:
            await ensure_shell_queue(broker, queue, session.scope)
        try:
            made = await broker.admin.set_queue(queue, scope=session.scope, **changed)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        return read(made.settings)

    found = session.run(work, "create")
    told = {name: found[name]}
    print_json(told) if session.as_json else print(f"{name} is {found[name]} in queue {queue}")


@command(config, "show")
def show(session: CommandContext) -> None:
    """Shows what this program goes by, and who said so: a flag, the environment, a file.

    The file is penstock.toml, or [tool.penstock] in pyproject.toml, of the working directory. A
    password in a URL is not shown.

    \b
    penstock config show
    PENSTOCK_PORT=8080 penstock config show --json
    """
    found = resolve({"url": session.said})
    if found["artifacts"].value is None:
        found["artifacts"] = SettingSource(default_location(found["url"].value), "default")
    told = {name: (hide_secret(name, each.value), each.source) for name, each in found.items()}
    if session.as_json:
        print_json(
            {name: {"value": value, "from": source} for name, (value, source) in told.items()}
        )
    else:
        rows = [(name.replace("_", "-"), value, source) for name, (value, source) in told.items()]
        print_table(("setting", "value", "from"), rows, "")


def hide_secret(name: str, value: Any) -> Any:
    if name.endswith("secret") and value is not None:
        return "(set)"
    if isinstance(value, tuple):
        return ",".join(value)
    return without_password(value) if name == "url" else value


COMMANDS = {"config": config}
