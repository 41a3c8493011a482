"""The `inbox`, `decide` and `pattern` commands: human steps on the command line."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.cli.commands.audit import DefaultGroup
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago, print_json
from penstock.errors import InvalidInput
from penstock.model.human import HumanPattern, HumanSpec
from penstock.model.message import NEVER, Moment
from penstock.rules.human import InboxStep, Person
from penstock.rules.human_patterns import list_parameters
from penstock.rules.human_spec import parse_spec
from penstock.wire.human import make_pattern_view, make_step_view

group = click.Group()


def make_person(session: CommandContext) -> Person:
    """The user of the command line owns the store, and acts for everyone."""
    return Person(session.user, sees_all=True, acts_for_all=True)


@click.group("inbox", cls=DefaultGroup)
def inbox() -> None:
    """List and decide human steps.

    \b
    penstock inbox
    penstock inbox show 42
    penstock decide 42 approve --comment "Fine."
    """


@command(inbox, "list")
def list_(session: CommandContext) -> None:
    """List open human steps, the next to time out first.

    \b
    penstock inbox
    penstock inbox list --json
    """
    steps, now = session.run_timed(
        lambda broker: broker.inbox.list_steps(
            make_person(session), view="all", scope=session.scope
        )
    )
    rows = [
        (
            each.step.id,
            each.step.spec.title,
            ", ".join(list_assigned(each)) or None,
            each.step.state.claimed_by or None,
            format_ago(each.step.created_at, now),
            format_left(each.step.times_out_at, now),
        )
        for each in steps
    ]
    columns = ("id", "title", "assigned", "claimed by", "age", "times out in")
    session.print_table(
        columns, rows, "no open human steps", (make_step_view(each) for each in steps)
    )


def list_assigned(found: InboxStep) -> list[str]:
    assign = found.step.spec.assign
    return [*assign.users, *assign.roles, *found.step.state.escalated_to]


def format_left(moment: Moment, now: Moment) -> str | None:
    return None if moment >= NEVER else format_ago(now, max(now, moment))


@command(inbox, "show")
@click.argument("id", type=click.IntRange(1))
def show(session: CommandContext, id: int) -> None:
    """Show a human step: the question, the options, comments and the decision.

    \b
    penstock inbox show 42
    """
    person = make_person(session)
    found = session.run(lambda broker: broker.inbox.get(id, person, scope=session.scope))
    print_json(make_step_view(found)) if session.as_json else print_step(found)


def print_step(found: InboxStep) -> None:
    step, spec = found.step, found.step.spec
    print(f"{spec.title}\n")
    if spec.content:
        print(f"{spec.content}\n")
    for name, field in spec.input.items():
        print(f"input   {name} ({field.type}){' *' * field.required} {field.title}".rstrip())
    for option in spec.options:
        needs = f", needs {' '.join(option.requires)}" if option.requires else ""
        print(f"option  {option.id} ({option.kind}{needs})")
    for approval in step.state.approvals:
        print(f"chosen  {approval.choice} by {approval.by}")
    for comment in step.state.comments:
        print(f"comment {comment.by}: {comment.text}")
    print(f"asked   by {step.requester or 'unknown'}")
    print(f"state   {found.state}")
    if (decision := found.decision) is not None:
        print(f"decided {decision.choice} by {decision.by} {decision.comment}".rstrip())


@command(inbox, "claim")
@click.argument("id", type=click.IntRange(1))
def claim(session: CommandContext, id: int) -> None:
    """Claim a human step, to show others that you are working on it.

    \b
    penstock inbox claim 42
    """
    person = make_person(session)
    found = session.run(lambda broker: broker.inbox.claim(id, person, scope=session.scope))
    session.print_result(make_step_view(found), f"human step {id} is claimed by {session.user}")


@command(inbox, "release")
@click.argument("id", type=click.IntRange(1))
def release(session: CommandContext, id: int) -> None:
    """Release the claim of a human step.

    \b
    penstock inbox release 42
    """
    person = make_person(session)
    found = session.run(lambda broker: broker.inbox.release(id, person, scope=session.scope))
    session.print_result(make_step_view(found), f"human step {id} is released")


@command(inbox, "delegate")
@click.argument("id", type=click.IntRange(1))
@click.argument("to", metavar="SUBJECT")
def delegate(session: CommandContext, id: int, to: str) -> None:
    """Let another person decide a human step in your place.

    \b
    penstock inbox delegate 42 jwt:bob
    """
    person = make_person(session)
    found = session.run(lambda broker: broker.inbox.delegate(id, person, to, scope=session.scope))
    session.print_result(make_step_view(found), f"human step {id} is delegated to {to}")


@command(inbox, "comment")
@click.argument("id", type=click.IntRange(1))
@click.argument("text")
def comment(session: CommandContext, id: int, text: str) -> None:
    """Comment on a human step.

    \b
    penstock inbox comment 42 "Waiting for the invoice."
    """
    person = make_person(session)
    found = session.run(lambda broker: broker.inbox.comment(id, person, text, scope=session.scope))
    session.print_result(make_step_view(found), f"human step {id} has a new comment")


@command(inbox, "request")
@click.option("--pattern", help="Name of the pattern to use.")
@click.option("--spec", help="Spec, as JSON or a JSON file.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Parameter. Repeatable.")
def request(
    session: CommandContext, pattern: str | None, spec: str | None, given: Sequence[str]
) -> None:
    """Create a human step from a pattern or a spec.

    \b
    penstock inbox request --pattern refund --set order=7 --set amount=650
    penstock inbox request --spec '{"title": "Ship it?"}'
    """
    if (pattern is None) is (spec is None):
        raise InvalidInput("give either --pattern or --spec")

    async def work(broker: Broker) -> int:
        if spec is not None:
            made = read_spec(spec)
        else:
            assert pattern is not None
            parameters = dict(map(split_pair, given))
            made = await broker.inbox.patterns.expand(pattern, parameters, scope=session.scope)
        user = session.user
        return (await broker.inbox.request(made, scope=session.scope, requester=user)).id

    id = session.run(work, create=True)
    session.print_result({"id": str(id)}, f"human step {id} is open")


def read_spec(text: str) -> HumanSpec:
    return parse_spec(read_fields(text))


def read_fields(text: str) -> dict[str, Any]:
    """Read a spec that is given as JSON, or as the path of a file with it."""
    source = "the spec"
    if not text.lstrip().startswith("{") and os.path.isfile(text):
        source, text = text, Path(text).read_text()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{source} is not a JSON object: {error}") from None


def split_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"{text[:60]!r} is not NAME=VALUE")
    return name, value


@command(group, "decide")
@click.argument("id", type=click.IntRange(1))
@click.argument("choice")
@click.option(
    "--input", "given", multiple=True, metavar="NAME=VALUE", help="Form field. Repeatable."
)
@click.option("--comment", default="", help="Comment to store with the decision.")
def decide(
    session: CommandContext, id: int, choice: str, given: Sequence[str], comment: str
) -> None:
    """Decide a human step.

    A value of --input is JSON; any other text is a string.

    \b
    penstock decide 42 approve
    penstock decide 42 reject --input reason="no receipt"
    """
    inputs = {name: read_value(value) for name, value in map(split_pair, given)}
    found = session.run(
        lambda broker: broker.inbox.decide(
            id, make_person(session), choice, inputs=inputs, comment=comment, scope=session.scope
        )
    )
    missing = found.step.spec.approvals - len(found.step.state.approvals)
    done = f"human step {id} is decided: {choice}"
    waiting = f"human step {id} has your choice, {missing} more needed"
    session.print_result(make_step_view(found), done if found.decision is not None else waiting)


def read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


@click.group("pattern")
def pattern() -> None:
    """Manage patterns of human steps.

    \b
    penstock pattern save refund '{"title": "Refund {{amount}}?"}'
    penstock pattern list
    """


@command(pattern, "save")
@click.argument("name")
@click.argument("spec")
@click.option("--description", default="", help="What the pattern is for.")
def save(session: CommandContext, name: str, spec: str, description: str) -> None:
    """Save a pattern. SPEC is JSON or a JSON file, with {{parameters}} in its texts.

    \b
    penstock pattern save refund '{"title": "Refund {{amount}}?", "assign": {"roles": ["cfo"]}}'
    penstock pattern save refund refund.json
    """
    given = HumanPattern(name=name, spec=read_fields(spec), description=description)
    saved = session.run(
        lambda broker: broker.inbox.patterns.save(given, scope=session.scope), create=True
    )
    session.print_result(
        make_pattern_view(saved), f"pattern {name} is saved as version {saved.version}"
    )


@command(pattern, "list")
def list_patterns(session: CommandContext) -> None:
    """List patterns of human steps.

    \b
    penstock pattern list
    """
    found = session.run(lambda broker: broker.inbox.patterns.list_patterns(scope=session.scope))
    rows = [
        (each.name, each.version, " ".join(list_parameters(each)) or None, each.description or None)
        for each in found
    ]
    columns = ("name", "version", "parameters", "description")
    session.print_table(columns, rows, "no patterns", map(make_pattern_view, found))


@command(pattern, "delete")
@click.argument("name")
def delete(session: CommandContext, name: str) -> None:
    """Delete a pattern. Open steps keep their text.

    \b
    penstock pattern delete refund
    """
    session.run(lambda broker: broker.inbox.patterns.delete(name, scope=session.scope))
    session.print_result({"name": name}, f"pattern {name} deleted")


COMMANDS = {"inbox": inbox, "decide": decide, "pattern": pattern}
