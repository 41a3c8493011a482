"""The `trust` commands: grants to callers from other scopes."""

import click

from penstock.broker.credentials import Credentials
from penstock.cli.context import CommandContext, command
from penstock.rules.access import Trust


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
@click.option("--tenant", default="default", show_default=True, help="Tenant of the trust.")
def set_(
    session: CommandContext, name: str, trusted: str, grants: tuple[str, ...], tenant: str
) -> None:
    """Let callers of scope TRUSTED use these grants in SCOPE.

    \b
    penstock trust set billing orders publish:inbox
    """
    saved = session.run_on_store(
        lambda store: Credentials(store).save_trust(tenant, name, trusted, grants)
    )
    session.print_result(
        describe_trust(saved),
        f"scope {name} grants callers of {trusted}: {' '.join(map(str, saved.grants))}",
    )


def describe_trust(each: Trust) -> dict[str, object]:
    return {
        "scope": each.scope,
        "trusted": each.trusted,
        "grants": [str(grant) for grant in each.grants],
    }


@command(trust, "list")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the trust.")
def list_(session: CommandContext, tenant: str) -> None:
    """List trusts between scopes.

    \b
    penstock trust list
    """
    found = session.run_on_store(lambda store: Credentials(store).list_trusts(tenant))
    rows = [(each.scope, each.trusted, " ".join(map(str, each.grants))) for each in found]
    session.print_table(
        ("scope", "trusted", "grants"), rows, "no trusts", map(describe_trust, found)
    )


@command(trust, "delete")
@click.argument("name", metavar="SCOPE")
@click.argument("trusted", metavar="TRUSTED")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the trust.")
def delete(session: CommandContext, name: str, trusted: str, tenant: str) -> None:
    """Delete a trust.

    \b
    penstock trust delete billing orders
    """
    session.run_on_store(lambda store: Credentials(store).delete_trust(tenant, name, trusted))
    deleted = {"scope": name, "trusted": trusted}
    session.print_result(deleted, f"scope {name} no longer trusts {trusted}")


COMMANDS = {"trust": trust}
