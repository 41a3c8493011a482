"""The `scope` commands."""

from collections.abc import Awaitable, Callable

import click

from penstock.broker.local import Broker
from penstock.broker.scopes import ScopeDetails
from penstock.cli.context import CommandContext, command

Work = Callable[[Broker, str], Awaitable[ScopeDetails]]


@click.group("scope")
def scope() -> None:
    """Manage scopes, which are namespaces of queues.

    \b
    penstock scope create billing --display-name Billing
    penstock scope list
    """


@command(scope, "create")
@click.argument("name")
@click.option("--display-name", help="Display name.")
@click.option("--description", help="What the scope is for.")
def create(
    session: CommandContext, name: str, display_name: str | None, description: str | None
) -> None:
    """Create a scope, or change its display name and description.

    \b
    penstock scope create billing --description 'Invoices and reminders'
    """
    made = session.run(
        lambda broker: broker.scopes.ensure(
            name, display_name=display_name, description=description
        ),
        create=True,
    )
    session.print_result(made, f"scope {name} saved")


@command(scope, "list")
def list_(session: CommandContext) -> None:
    """List scopes.

    \b
    penstock scope list
    """
    found = session.run(lambda broker: broker.scopes.list_scopes())
    rows = [(each.name, each.state, each.display_name, each.description) for each in found]
    columns = ("scope", "state", "display name", "description")
    session.print_table(columns, rows, "no scopes", found)


def add_scope_command(verb: str, text: str, work: Work) -> None:
    def call(session: CommandContext, name: str) -> None:
        changed = session.run(lambda broker: work(broker, name))
        session.print_result(changed, f"scope {name} is {changed.state}")

    call.__doc__ = f"{text}\n\n\b\npenstock scope {verb} billing"
    command(scope, verb)(click.argument("name")(call))


async def pause(broker: Broker, name: str) -> ScopeDetails:
    await broker.admin.pause_scope(name)
    return await broker.scopes.get(name)


async def resume(broker: Broker, name: str) -> ScopeDetails:
    await broker.admin.pause_scope(name, paused=False)
    return await broker.scopes.get(name)


async def archive(broker: Broker, name: str) -> ScopeDetails:
    return await broker.scopes.archive(name)


async def unarchive(broker: Broker, name: str) -> ScopeDetails:
    return await broker.scopes.unarchive(name)


add_scope_command("pause", "Pause a scope: no claims from its queues.", pause)
add_scope_command("resume", "Resume a paused scope.", resume)
add_scope_command("archive", "Archive a scope: no claims and no publishes.", archive)
add_scope_command("unarchive", "Unarchive a scope.", unarchive)
COMMANDS = {"scope": scope}
