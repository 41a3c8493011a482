"""Writes the reference of the commands from the commands: python -m tests.cli.reference."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SHARED = ("--url", "--json", "--scope", "--help")
BEGIN = "<!-- Generated from here on by python -m tests.cli.reference -->\n"


def commands(
    group: click.Group = main, path: str = "penstock"
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def options(command: click.Command) -> list[click.Option]:
    """Without those that every command has, and those that are not for people."""
    found = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return [each for each in found if each.opts[0] not in SHARED]


def examples(command: click.Command) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    return [line for line in text.splitlines() if line.startswith("penstock ")]


def described(path: str, command: click.Command) -> str:
    usage = " ".join(command.collect_usage_pieces(click.Context(command))[1:])
    text = inspect.cleandoc(command.help or "").split("\b")[0].strip()
    parts = [f"## {path}", f"`{path} {usage}`".replace(" `", "`"), text]
    if listed := options(command):
        rows = [f"| {spelled(each)} | {meaning(each)} |" for each in listed]
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    parts.append("```sh\n" + "\n".join(examples(command)) + "\n```")
    return "\n\n".join(parts) + "\n"


def spelled(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(main))}"
    return f"{names}{value}".replace("|", "\\|")


def meaning(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    return f"{(option.help or '').replace('  [', ' [')}{default}".replace("|", "\\|")


def generated() -> str:
    return "\n".join(described(*each) for each in commands())


def page() -> str:
    head, _, _ = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{generated()}"


if __name__ == "__main__":
    PAGE.write_text(page())
