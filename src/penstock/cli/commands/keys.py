"""Who may do what over HTTP: API keys and roles."""

from typing import Any

import click

from penstock.broker.credentials import Credentials
from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago, format_time, print_json, print_json_lines, print_table
from penstock.model.message import NEVER, Moment
from penstock.rules.access import EVERY, ROLES, Key
from penstock.rules.durations import parse_seconds

SHOWN_ONCE = "keep it: it is not shown again"


@click.group("key")
def key() -> None:
    """API keys, for servers with --auth.

    Roles are producer, worker, viewer, operator, admin, shell, and your own; a grant is a right
    (publish, consume, read, manage, access, shell) with the queues it is for.

    \b
    penstock key create checkout --role producer
    penstock key create mailer --grant consume:mail-* --expires 90d
    penstock key list
    """


@command(key, "create")
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="Repeatable.")
@click.option("--grant", "grants", multiple=True, metavar="RIGHT[:QUEUES]", help="Repeatable.")
@click.option("--in-scope", "scopes", multiple=True, help="Where it is at home. Default: all.")
@click.option("--type", "types", multiple=True, help="What it may claim. Default: any.")
@click.option("--expires", metavar="DURATION", help="After that long, like 90d.")
@click.option("--rate", type=click.FloatRange(min=0.001), help="Requests a second.")
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def create(session: CommandContext, name: str, expires: str | None, **given: Any) -> None:
    """Makes a key and prints it, this once.

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

    async def work(broker: Broker) -> tuple[Key, str]:
        return await Credentials(broker.store).create_key(new, ttl=ttl)

    made, token = session.run(work, "create")
    print_key(session, made, token)


def print_key(session: CommandContext, made: Key, token: str) -> None:
    if session.as_json:
        print_json({"id": made.id, "name": made.name, "key": token})
    else:
        print(token)
        click.echo(f"key {made.id} ({made.name}): {SHOWN_ONCE}", err=True)


@command(key, "list")
def list_(session: CommandContext) -> None:
    """Lists the keys of all tenants, without their secrets.

    \b
    penstock key list
    penstock key list --json
    """

    async def work(broker: Broker) -> tuple[list[Key], Moment]:
        return await Credentials(broker.store).list_keys(), await broker.store.now()

    keys, now = session.run(work, "empty")
    if session.as_json:
        print_json_lines(describe_key(each, now) for each in keys)
        return
    columns = ("key", "name", "tenant", "state", "may", "scopes", "made", "expires")
    print_table(columns, [make_row(each, now) for each in keys], "no keys")


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
    may, scopes = " ".join([*each.roles, *each.grants]), " ".join(each.scopes)
    made = format_ago(each.created_at, now)
    return each.id, each.name, each.tenant, each.state(now), may, scopes, made, expires


@command(key, "rotate")
@click.argument("id")
@click.option("--grace", default="0s", show_default=True, help="The old one opens that long more.")
def rotate(session: CommandContext, id: str, grace: str) -> None:
    """Gives a key a new secret, and prints it, this once.

    \b
    penstock key rotate 9f31c2a07bd4 --grace 1h
    """

    async def work(broker: Broker) -> tuple[Key, str]:
        return await Credentials(broker.store).rotate_key(id, grace=parse_seconds(grace))

    print_key(session, *session.run(work))


@command(key, "revoke")
@click.argument("id")
def revoke(session: CommandContext, id: str) -> None:
    """Ends a key for ever; servers refuse it within 5 seconds.

    \b
    penstock key revoke 9f31c2a07bd4
    """

    async def work(broker: Broker) -> Key:
        return await Credentials(broker.store).revoke_key(id)

    ended = session.run(work)
    said = {"id": ended.id, "name": ended.name, "state": "revoked"}
    print_json(said) if session.as_json else print(f"key {ended.id} ({ended.name}) is revoked")


@click.group("role")
def role() -> None:
    """Roles: named lists of grants that keys go by.

    \b
    penstock role list
    penstock role set mailer consume:mail-* read:mail-*
    """


@command(role, "set")
@click.argument("name")
@click.argument("grants", nargs=-1, required=True)
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def set_role(session: CommandContext, name: str, grants: tuple[str, ...], tenant: str) -> None:
    """Makes or changes a role; with - before it a grant denies.

    \b
    penstock role set auditor read -- -read:payroll
    """

    async def work(broker: Broker) -> tuple[str, ...]:
        return (await Credentials(broker.store).save_role(tenant, name, grants)).grants

    saved = session.run(work, "create")
    said = {"name": name, "grants": saved}
    print_json(said) if session.as_json else print(f"role {name}: {' '.join(saved)}")


@command(role, "list")
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def list_roles(session: CommandContext, tenant: str) -> None:
    """Lists the roles, those built in too.

    \b
    penstock role list
    """

    async def work(broker: Broker) -> dict[str, tuple[str, ...]]:
        return await Credentials(broker.store).list_roles(tenant)

    found = session.run(work, "empty")
    if session.as_json:
        print_json_lines({"name": name, "grants": grants} for name, grants in found.items())
        return
    rows = [
        (name, " ".join(grants), "yes" if name in ROLES else None) for name, grants in found.items()
    ]
    print_table(("role", "grants", "built in"), rows, "")


@command(role, "delete")
@click.argument("name")
@click.option("--tenant", default="default", show_default=True, help="Whose.")
def delete_role(session: CommandContext, name: str, tenant: str) -> None:
    """Deletes a role; keys that go by it lose what it gave.

    \b
    penstock role delete mailer
    """

    async def work(broker: Broker) -> None:
        await Credentials(broker.store).delete_role(tenant, name)

    session.run(work)
    print_json({"deleted": name}) if session.as_json else print(f"role {name} is deleted")


COMMANDS = {"key": key, "role": role}
