"""What `penstock migrate` does: migrations, settings that a pooler forgets, the index of types."""

import asyncpg

from penstock.errors import StoreUnusable
from penstock.stores.postgres import type_index
from penstock.stores.postgres.address import SETTINGS, Address, parse
from penstock.stores.postgres.migrate import (
    applied,
    connect_to_migrate,
    keep_settings,
    migrate,
    missing,
)
from penstock.stores.postgres.open import refuse_unfit
from penstock.stores.postgres.trouble import ERRORS, named

SETTLE = "settings of the role"
INDEX = "index ready_type"


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """The steps that were taken; with `plan`, those that would be."""
    address = parse(url)
    connection = await connect_to_migrate(address)
    try:
        await refuse_unfit(connection, address)
        steps = await steps_to_take(connection, address)
        if steps and not plan:
            await take(connection, address, steps)
        return steps
    except ERRORS as error:
        raise named(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        connection.terminate()


async def steps_to_take(connection: asyncpg.Connection, address: Address) -> list[str]:
    steps = [f"migration {each.number} {each.name}" for each in await missing(connection)]
    if address.pooler and await forgotten(connection):
        steps.append(SETTLE)
    if await applied(connection) and await type_index.lacking(connection):
        steps.append(INDEX)
    return steps


async def take(connection: asyncpg.Connection, address: Address, steps: list[str]) -> None:
    await migrate(address)
    if SETTLE in steps:
        await keep_settings(connection, SETTINGS)
    if INDEX in steps:
        await type_index.repair(connection, address)


async def forgotten(connection: asyncpg.Connection) -> bool:
    rows = await connection.fetch("SELECT name, setting FROM pg_settings")
    shown = {row["name"]: row["setting"] for row in rows}
    return any(shown[name] != value for name, value in SETTINGS.items())
