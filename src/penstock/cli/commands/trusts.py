"""Which scopes let callers of another in."""

import click

from penstock.broker.credentials import Credentials
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.rules.access import Trust


@click.group("trust")
def trust() -> None:
    """Trusts: what callers of one scope may do in another.

    As far as they may at home.

    \b
    penstock trust set billing orders publish:inbox
    penstock trust list
    """


@command(trust, "set")
@click.argument("name", metavar="SCOPE")
@click.argument("trusted", metavar="TRUSTED")
@click.argument("grants", nargs=-1, required=True)
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def set_(
    session: CommandContext, name: str, trusted: str, grants: tuple[str, ...], tenant: str
) -> None:
    """Lets callers at home in scope TRUSTED use these grants in SCOPE.

    \b
    penstock trust set billing orders publish:inbox
    """

    async def work(broker: Broker) -> Trust:
        return await Credentials(broker.store).save_trust(tenant, name, trusted, grants)

    saved = session.run(work)
    told = " ".join(map(str, saved.grants))
    if session.as_json:
        print_json(describe_trust(saved))
    else:
        print(f"scope {name} trusts callers of {trusted} with {told}")


def describe_trust(each: Trust) -> dict[str, object]:
    return {
        "scope": each.scope,
        "trusted": each.trusted,
        "grants": [str(grant) for grant in each.grants],
    }


@command(trust, "list")
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def list_(session: CommandContext, tenant: str) -> None:
    """Lists which scopes trust which.

    \b
    penstock trust list
    """

    async def work(broker: Broker) -> list[Trust]:
        return await Credentials(broker.store).list_trusts(tenant)

    found = session.run(work, "empty")
    if session.as_json:
        print_json_lines(map(describe_trust, found))
        return
    rows = [(each.scope, each.trusted, " ".join(map(str, each.grants))) for each in found]
    print_table(("scope", "trusts", "with"), rows, "no scope trusts another")


@command(trust, "delete")
@click.argument("name", metavar="SCOPE")
@click.argument("trusted", metavar="TRUSTED")
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def delete(session: CommandContext, name: str, trusted: str, tenant: str) -> None:
    """Lets them in no more.

    \b
    penstock trust delete billing orders
    """

    async def work(broker: Broker) -> None:
        await Credentials(broker.store).delete_trust(tenant, name, trusted)

    session.run(work)
    said = {"scope": name, "trusted": trusted}
    print_json(said) if session.as_json else print(f"scope {name} trusts {trusted} no more")


COMMANDS = {"trust": trust}
