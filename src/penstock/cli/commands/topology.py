"""The commands `apply` and `export`."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.broker.topology.plan import TopologyPlan, TopologyStep
from penstock.cli.context import CommandContext, command
from penstock.cli.output import cut, escape_control, print_json
from penstock.errors import InvalidInput
from penstock.rules.topology_file import write_toml

SIGNS = {"create": "+", "change": "~", "adopt": "=", "remove": "-", "leave": "?", "keep": "!"}
NOTES = {
    "adopt": " (taken over)",
    "leave": " (no longer declared; --prune removes it)",
    "keep": " (no longer declared; kept, because it has unfinished messages)",
}
MAX_VALUE_LENGTH = 60


@click.group()
def topology() -> None:
    """Holds the two commands, which have no group of their own."""


@command(topology, "apply")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--plan", is_flag=True, help="Only print what would change, and exit with 2 if so.")
@click.option("--prune", is_flag=True,
              help="Delete objects that this topology created and no longer declares.")  # fmt: skip
@click.option("--adopt", is_flag=True, help="Take over existing objects.")
def apply(session: CommandContext, file: str, plan: bool, prune: bool, adopt: bool) -> None:
    """Apply a topology file to the store.

    FILE is TOML or JSON, or - for stdin. The change is atomic.

    \b
    penstock apply topology.toml --plan
    penstock apply topology.toml --prune
    """
    source = read_file(file)

    async def work(broker: Broker) -> TopologyPlan:
        run = broker.topology.plan if plan else broker.topology.apply
        return await run(source, prune=prune, adopt=adopt)

    found = session.run(work, create=True)
    if session.as_json:
        print_json({**msgspec.to_builtins(found), "changes": found.changes})
    else:
        print_plan(found, plan)
    if plan and found.changes:
        sys.exit(2)


def read_file(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None


def print_plan(plan: TopologyPlan, only_planned: bool) -> None:
    for step in plan.steps:
        print_step(step)
    count = sum(each.step not in ("leave", "keep") for each in plan.steps)
    done = f"{count} would change" if only_planned else f"{count} changed"
    print(f"topology {plan.name}: {done}, {plan.unchanged} unchanged")


def print_step(step: TopologyStep) -> None:
    where = "" if step.scope in ("", "default") or step.kind == "scope" else f" in {step.scope}"
    note = NOTES.get(step.step, "")
    print(escape_control(f"{SIGNS[step.step]} {step.kind} {step.key}{where}{note}"))
    for each in step.changes:
        if each.field in ("name", "queue") and step.step == "create":
            continue
        new = format_value(each.new)
        text = new if step.step == "create" else f"{format_value(each.old)} -> {new}"
        print(escape_control(f"    {each.field}: {text}"))


def format_value(value: Any) -> str:
    return (
        "default" if value is None else cut(msgspec.json.encode(value).decode(), MAX_VALUE_LENGTH)
    )


@command(topology, "export")
@click.argument("name", required=False)
@click.option("--output", type=click.Path(dir_okay=False, writable=True), help="File to write.")
def export(session: CommandContext, name: str | None, output: str | None) -> None:
    """Export queues, rules and other objects as a topology file.

    With NAME, only the objects that this topology owns. --json prints JSON instead of TOML. Keys,
    secrets and messages are never exported.

    \b
    penstock export > topology.toml
    penstock export shop --output shop.toml
    """
    document = session.run(lambda broker: broker.topology.export(name))
    text = write_toml(document)
    if session.as_json:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    if output is None:
        print(text, end="")
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{output}: {error.strerror}") from None


COMMANDS = {"apply": apply, "export": export}
