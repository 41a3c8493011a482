"""The `key` and `role` commands, for access over HTTP."""

from typing import Any

import click

from penstock.broker.credentials import Credentials
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago, format_time, print_json
from penstock.model.message import NEVER, Moment
from penstock.model.queue import EVERY
from penstock.rules.access import ROLES, Key
from penstock.rules.durations import parse_seconds
from penstock.store import Store

SHOWN_ONCE = "store it safely; it is not shown again"


@click.group("key")
def key() -> None:
    """Manage API keys for servers with --auth.

    Built-in roles are producer, worker, viewer, operator, admin and shell. A grant is a right
    (publish, consume, read, manage, access, reveal, signal, decide or shell), optionally limited to
    queues: consume:mail-*.

    \b
    penstock key create checkout --role producer
    penstock key create mailer --grant consume:mail-* --expires 90d
    penstock key list
    """


@command(key, "create")
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="Role of the key. Repeatable.")
@click.option(
    "--grant", "grants", multiple=True, metavar="RIGHT[:QUEUES]",
    help="Grant of the key. Repeatable.",
)  # fmt: skip
@click.option(
    "--in-scope",
    "scopes",
    multiple=True,
    help="Scope the key is valid in. Repeatable. Default: all.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    help="Message type the key may claim. Repeatable. Default: all.",
)
@click.option("--expires", metavar="DURATION", help="Time until the key expires, such as 90d.")
@click.option("--rate", type=click.FloatRange(min=0.001), help="Maximum requests per second.")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the key.")
def create(session: CommandContext, name: str, expires: str | None, **given: Any) -> None:
    """Create an API key and print it. It is not shown again.

    \b
    penstock key create checkout --role producer
    penstock key create ops --role operator --in-scope orders --expires 30d
    """
    new = Key(
        id="",
        name=name,
        tenant=given["tenant"],
        roles=tuple(given["roles"]),
        grants=tuple(given["grants"]),
        scopes=tuple(given["scopes"]) or (EVERY,),
        types=tuple(given["types"]) or (EVERY,),
        rate=given["rate"],
        created_by=session.user,
    )
    ttl = None if expires is None else parse_seconds(expires)
    made, token = session.run_on_store(
        lambda store: Credentials(store).create_key(new, ttl=ttl), create=True
    )
    print_key(session, made, token)


def print_key(session: CommandContext, made: Key, token: str) -> None:
    if session.as_json:
        print_json({"id": made.id, "name": made.name, "key": token})
    else:
        print(token)
        click.echo(f"key {made.id} ({made.name}): {SHOWN_ONCE}", err=True)


@command(key, "list")
def list_(session: CommandContext) -> None:
    """List the API keys of all tenants, without secrets.

    \b
    penstock key list
    penstock key list --json
    """

    async def work(store: Store) -> tuple[list[Key], Moment]:
        return await Credentials(store).list_keys(), await store.now()

    keys, now = session.run_on_store(work)
    columns = ("key", "name", "tenant", "state", "access", "scopes", "age", "expires")
    rows = [make_row(each, now) for each in keys]
    session.print_table(columns, rows, "no keys", (describe_key(each, now) for each in keys))


def describe_key(each: Key, now: Moment) -> dict[str, Any]:
    return {
        "id": each.id,
        "name": each.name,
        "tenant": each.tenant,
        "state": each.state(now),
        "roles": each.roles,
        "grants": each.grants,
        "scopes": each.scopes,
        "types": each.types,
        "rate": each.rate,
        "created_at": format_time(each.created_at),
        "created_by": each.created_by,
        "expires_at": None if each.expires_at == NEVER else format_time(each.expires_at),
        "revoked_at": format_time(each.revoked_at),
    }


def make_row(each: Key, now: Moment) -> tuple[Any, ...]:
    expires = None if each.expires_at == NEVER else format_time(each.expires_at)
    access, scopes = " ".join([*each.roles, *each.grants]), " ".join(each.scopes)
    age = format_ago(each.created_at, now)
    return each.id, each.name, each.tenant, each.state(now), access, scopes, age, expires


@command(key, "rotate")
@click.argument("id")
@click.option(
    "--grace", default="0s", show_default=True, help="How long the old secret stays valid."
)
def rotate(session: CommandContext, id: str, grace: str) -> None:
    """Replace the secret of a key and print the new one. It is not shown again.

    \b
    penstock key rotate 9f31c2a07bd4 --grace 1h
    """
    seconds = parse_seconds(grace)
    rotated = session.run_on_store(lambda store: Credentials(store).rotate_key(id, grace=seconds))
    print_key(session, *rotated)


@command(key, "revoke")
@click.argument("id")
def revoke(session: CommandContext, id: str) -> None:
    """Revoke a key permanently. Servers reject it within 5 seconds.

    \b
    penstock key revoke 9f31c2a07bd4
    """
    revoked = session.run_on_store(lambda store: Credentials(store).revoke_key(id))
    session.print_result(
        {"id": revoked.id, "name": revoked.name, "state": "revoked"},
        f"key {revoked.id} ({revoked.name}) is revoked",
    )


@click.group("role")
def role() -> None:
    """Manage roles, which are named lists of grants.

    \b
    penstock role list
    penstock role set mailer consume:mail-* read:mail-*
    """


@command(role, "set")
@click.argument("name")
@click.argument("grants", nargs=-1, required=True)
@click.option("--tenant", default="default", show_default=True, help="Tenant of the role.")
def set_role(session: CommandContext, name: str, grants: tuple[str, ...], tenant: str) -> None:
    """Create or replace a role. A grant with a leading - denies the right.

    \b
    penstock role set auditor read -- -read:payroll
    """

    async def work(store: Store) -> tuple[str, ...]:
        return (await Credentials(store).save_role(tenant, name, grants)).grants

    saved = session.run_on_store(work, create=True)
    session.print_result({"name": name, "grants": saved}, f"role {name}: {' '.join(saved)}")


@command(role, "list")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the role.")
def list_roles(session: CommandContext, tenant: str) -> None:
    """List roles, including the built-in ones.

    \b
    penstock role list
    """
    found = session.run_on_store(lambda store: Credentials(store).list_roles(tenant))
    rows = [
        (name, " ".join(grants), "yes" if name in ROLES else None) for name, grants in found.items()
    ]
    values = ({"name": name, "grants": grants} for name, grants in found.items())
    session.print_table(("role", "grants", "built-in"), rows, "", values)


@command(role, "delete")
@click.argument("name")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the role.")
def delete_role(session: CommandContext, name: str, tenant: str) -> None:
    """Delete a role. Keys that have it lose its grants.

    \b
    penstock role delete mailer
    """
    session.run_on_store(lambda store: Credentials(store).delete_role(tenant, name))
    session.print_result({"deleted": name}, f"role {name} deleted")


COMMANDS = {"key": key, "role": role}
