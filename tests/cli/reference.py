"""Writes the reference of the commands from the commands: python -m tests.cli.reference."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SHARED = ("--url", "--json", "--scope", "--help")
BEGIN = "<!-- Generated from here on by python -m tests.cli.reference -->\n"


def list_commands(
    group: click.Group = main, path: str = "penstock"
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from list_commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def list_options(command: click.Command) -> list[click.Option]:
    """Without those that every command has, and those that are not for people."""
    found = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return [each for each in found if each.opts[0] not in SHARED]


def list_examples(command: click.Command) -> list[str]:
    """Lists the examples. One that goes on in the next line has several lines."""
    text = inspect.cleandoc(command.help or "")
    return re.findall(r"^penstock (?:.*\\\n)*.*", text, re.MULTILINE)


def describe(path: str, command: click.Command) -> str:
    usage = " ".join(command.collect_usage_pieces(click.Context(command))[1:])
    text = inspect.cleandoc(command.help or "").split("\b")[0].strip()
    parts = [f"## {path}", f"`{path} {usage}`".replace(" `", "`"), text]
    if listed := list_options(command):
        rows = [f"| {spell(each)} | {describe_option(each)} |" for each in listed]
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    parts.append("```sh\n" + "\n".join(list_examples(command)) + "\n```")
    return "\n\n".join(parts) + "\n"


def spell(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(main))}"
    return f"{names}{value}".replace("|", "\\|")


def describe_option(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    return f"{(option.help or '').replace('  [', ' [')}{default}".replace("|", "\\|")


def generate() -> str:
    return "\n".join(describe(*each) for each in list_commands())


def make_page() -> str:
    head, _, _ = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{generate()}"


if __name__ == "__main__":
    PAGE.write_text(make_page())
