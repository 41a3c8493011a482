"""The `rule` commands."""

import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.cli.commands.pipeline import add_pipeline_options, open_spark
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_clock, print_json, print_json_lines, print_table
from penstock.errors import InvalidInput
from penstock.model.routing import Action, Rule, RuleCoverage, RuleTest, StoredRule
from penstock.rules.durations import parse_seconds
from penstock.rules.plurals import format_count
from penstock.rules.rule_checks import name_rule, parse_rule

last_option = click.option(
    "--last", default=1_000, show_default=True, type=click.IntRange(1, 10_000),
    help="Number of recent messages to try.",
)  # fmt: skip


@click.group("rule")
def rule() -> None:
    """Manage routing rules.

    \b
    penstock rule test vip.toml --last 1000
    penstock rule add vip.toml
    penstock rule list
    penstock rule disable vip-mail
    """


def read_rules(path: Path, scope: str) -> list[Rule]:
    """Read the rules of a TOML file with [[rule]] tables, or of a JSON file."""
    text = path.read_bytes()
    try:
        given = (
            msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text.decode())
        )
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path.name}: {error}") from None
    tables = given.get("rule", [given]) if isinstance(given, dict) else given
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise InvalidInput(f"{path.name} has no [[rule]] table")
    rules = []
    for each in tables:
        with name_rule(each.get("name")):
            rules.append(parse_rule({"scope": scope, **each}))
    return rules


file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@command(rule, "add")
@file_argument
def add(session: CommandContext, file: Path) -> None:
    """Save the rules of a file. A rule that exists gets a new version.

    \b
    penstock rule add vip.toml
    """
    rules = read_rules(file, session.scope)

    saved = session.run(lambda broker: broker.rules.save_all(rules), create=True)
    if session.as_json:
        print_json_lines(map(describe_rule, saved))
    else:
        for stored in saved:
            print(f"saved {stored.reference}")


@command(rule, "list")
def list_(session: CommandContext) -> None:
    """List the rules in the order in which they are tried.

    \b
    penstock rule list
    """
    found = session.run(lambda broker: broker.rules.list_rules(scope=session.scope))
    columns = ("rule", "version", "on", "order", "queue", "type", "when", "do", "state")
    session.print_table(
        columns, [make_row(each) for each in found], "no rules", map(describe_rule, found)
    )


def make_row(stored: StoredRule) -> Sequence[Any]:
    each = stored.rule
    when = each.when if len(each.when) <= 40 else f"{each.when[:39]}…"
    do = ", ".join(map(describe_action, each.do))
    return (each.name, stored.version, each.on.value, each.order, each.queue, each.type, when,
            do, describe_state(stored))  # fmt: skip


def describe_state(stored: StoredRule) -> str:
    if not stored.rule.enabled:
        return "disabled"
    return "suspended" if stored.suspended else "enabled"


def describe_action(action: Action) -> str:
    ((name, value),) = msgspec.to_builtins(action).items()
    return f"{name} {value}" if isinstance(value, str | float | int) and value is not True else name


def describe_rule(stored: StoredRule) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(stored.rule),
        "scope": stored.rule.scope,
        "enabled": stored.rule.enabled,
        "version": stored.version,
        "author": stored.author,
        "suspended": stored.suspended,
    }


@command(rule, "show")
@click.argument("name")
@click.option("--versions", is_flag=True, help="List the versions that were saved.")
def show(session: CommandContext, name: str, versions: bool) -> None:
    """Show a rule, or its versions.

    \b
    penstock rule show vip-mail
    penstock rule show vip-mail --versions
    """

    async def work(broker: Broker) -> list[StoredRule]:
        if versions:
            return await broker.rules.versions(name, scope=session.scope)
        return [await broker.rules.get(name, scope=session.scope)]

    found = session.run(work)
    if session.as_json:
        print_json_lines(map(describe_rule, found))
    elif versions:
        rows = [(each.version, format_clock(each.saved_at), each.author, each.rule.when,
                 ", ".join(map(describe_action, each.rule.do))) for each in found]  # fmt: skip
        print_table(("version", "saved (UTC)", "author", "when", "do"), rows, "no versions")
    else:
        print_rule(found[0])


def print_rule(stored: StoredRule) -> None:
    for name, value in describe_rule(stored).items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        print(f"{name:12} {text}")


@command(rule, "enable")
@click.argument("name")
def enable(session: CommandContext, name: str) -> None:
    """Enable a rule. This also ends a suspension.

    \b
    penstock rule enable vip-mail
    """
    set_enabled(session, name, enabled=True)


@command(rule, "disable")
@click.argument("name")
def disable(session: CommandContext, name: str) -> None:
    """Disable a rule. Messages are published as if it did not exist.

    \b
    penstock rule disable vip-mail
    """
    set_enabled(session, name, enabled=False)


def set_enabled(session: CommandContext, name: str, *, enabled: bool) -> None:
    stored = session.run(
        lambda broker: broker.rules.enable(name, enabled=enabled, scope=session.scope)
    )
    session.print_result(describe_rule(stored), f"{stored.reference} is {describe_state(stored)}")


@command(rule, "delete")
@click.argument("name")
def delete(session: CommandContext, name: str) -> None:
    """Delete a rule with its versions.

    \b
    penstock rule delete vip-mail
    """
    session.run(lambda broker: broker.rules.delete(name, scope=session.scope))
    session.print_result({"rule": name, "deleted": True}, f"{name} deleted")


@command(rule, "test")
@file_argument
@last_option
def test(session: CommandContext, file: Path, last: int) -> None:
    """Try the rules of a file on recent messages. Nothing is written.

    \b
    penstock rule test vip.toml --last 1000
    """
    rules = read_rules(file, session.scope)

    async def work(broker: Broker) -> list[RuleTest]:
        return [await broker.rules.test(each, last=last) for each in rules]

    for each, result in zip(rules, session.run(work), strict=True):
        if session.as_json:
            print_json({"rule": each.name, **msgspec.to_builtins(result)})
        else:
            print_test(each, result)


def print_test(each: Rule, result: RuleTest) -> None:
    print(f"{each.name}: matched {result.matched} of {format_count(result.tried, 'message')};"
          f" earlier rule {result.shadowed}, missing field {result.missing_field},"
          f" errors {result.errors}")  # fmt: skip
    rows = [(each.id, each.queue, each.type, each.verdict, ", ".join(each.outputs),
             ", ".join(each.changed), each.note) for each in result.effects]  # fmt: skip
    if rows:
        columns = ("id", "queue", "type", "verdict", "outputs", "changed", "note")
        print_table(columns, rows, "")


@command(rule, "coverage")
@last_option
def coverage(session: CommandContext, last: int) -> None:
    """Count how many recent messages each rule matches.

    \b
    penstock rule coverage --last 5000
    """
    found: list[RuleCoverage] = session.run(
        lambda broker: broker.rules.coverage(last=last, scope=session.scope)
    )
    columns = ("rule", "on", "seen", "matched", "shadowed", "missing field", "errors", "note")
    rows = [(each.name, each.on.value, each.seen, each.matched, each.shadowed, each.missing_field,
             each.errors, "never matched" if each.never else "") for each in found]  # fmt: skip
    session.print_table(columns, rows, "no rules", found)


@command(rule, "backtest")
@file_argument
@click.option("--since", default="30d", show_default=True,
              help="How far back to search.")  # fmt: skip
@click.option("--against", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="File with rules of the same names to compare with.")  # fmt: skip
@add_pipeline_options
def backtest(
    session: CommandContext, file: Path, since: str, against: Path | None, lake: str, master: str
) -> None:
    """Count what the rules of a file would have matched in the lake.

    \b
    penstock rule backtest vip.toml --since 30d
    penstock rule backtest vip.toml --against vip-before.toml
    """
    rules = read_rules(file, session.scope)
    former = {} if against is None else {r.name: r for r in read_rules(against, session.scope)}
    begin = datetime.now(UTC) - timedelta(seconds=parse_seconds(since))
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.backtest import backtest

        found = [(each.name, backtest(spark, lake, each, begin, former.get(each.name)))
                 for each in rules]  # fmt: skip
    for name, result in found:
        if session.as_json:
            print_json({"rule": name, **msgspec.to_builtins(result)})
            continue
        into = ", ".join(f"{queue} {count}" for queue, count in result.queues.items())
        print(f"{name}: matched {result.matched} of {format_count(result.tried, 'message')};"
              f" missing field {result.missing_field}, errors {result.errors}"
              + (f": {into}" if into else ""))  # fmt: skip
        if result.gained is not None:
            print(f"{name}: {result.gained} match that did not, {result.lost} do not that did")


COMMANDS = {"rule": rule}
