"""The `trust` commands: grants to callers from other scopes."""

import click

from penstock.broker.credentials import Credentials
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.rules.access import Trust
from penstock.store import Store


@click.group("trust")
def trust() -> None:
    """Let callers of one scope act in another.

    A trust never gives a caller more rights than it has in its own scope.

    \b
    penstock trust set billing orders publish:inbox
    penstock trust list
    """


@command(trust, "set")
@click.argument("name", metavar="SCOPE")
@click.argument("trusted", metavar="TRUSTED")
@click.argument("grants", nargs=-1, required=True)
@click.option("--tenant", default="default", show_default=True, help="Tenant to use.")
def set_(
    session: CommandContext, name: str, trusted: str, grants: tuple[str, ...], tenant: str
) -> None:
    """Let callers of scope TRUSTED use these grants in SCOPE.

    \b
    penstock trust set billing orders publish:inbox
    """

    async def work(store: Store) -> Trust:
        return await Credentials(store).save_trust(tenant, name, trusted, grants)

    saved = session.run_on_store(work)
    if session.as_json:
        print_json(describe_trust(saved))
    else:
        print(f"scope {name} grants callers of {trusted}: {' '.join(map(str, saved.grants))}")


def describe_trust(each: Trust) -> dict[str, object]:
    return {
        "scope": each.scope,
        "trusted": each.trusted,
        "grants": [str(grant) for grant in each.grants],
    }


@command(trust, "list")
@click.option("--tenant", default="default", show_default=True, help="Tenant to use.")
def list_(session: CommandContext, tenant: str) -> None:
    """List trusts between scopes.

    \b
    penstock trust list
    """

    async def work(store: Store) -> list[Trust]:
        return await Credentials(store).list_trusts(tenant)

    found = session.run_on_store(work)
    if session.as_json:
        print_json_lines(map(describe_trust, found))
        return
    rows = [(each.scope, each.trusted, " ".join(map(str, each.grants))) for each in found]
    print_table(("scope", "trusted", "grants"), rows, "no trusts")


@command(trust, "delete")
@click.argument("name", metavar="SCOPE")
@click.argument("trusted", metavar="TRUSTED")
@click.option("--tenant", default="default", show_default=True, help="Tenant to use.")
def delete(session: CommandContext, name: str, trusted: str, tenant: str) -> None:
    """Delete a trust.

    \b
    penstock trust delete billing orders
    """

    async def work(store: Store) -> None:
        await Credentials(store).delete_trust(tenant, name, trusted)

    session.run_on_store(work)
    deleted = {"scope": name, "trusted": trusted}
    print_json(deleted) if session.as_json else print(f"scope {name} no longer trusts {trusted}")


COMMANDS = {"trust": trust}
