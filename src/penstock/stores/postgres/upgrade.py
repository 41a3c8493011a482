"""Implements `penstock migrate`: migrations, role settings for poolers, the type index."""

import asyncpg

from penstock.errors import StoreUnusable
from penstock.stores.postgres import type_index
from penstock.stores.postgres.dsn import SETTINGS, PostgresDsn, parse
from penstock.stores.postgres.errors import ERRORS, translate_error
from penstock.stores.postgres.migrate import (
    connect_to_migrate,
    find_missing,
    keep_settings,
    migrate,
    read_applied,
)
from penstock.stores.postgres.open import refuse_unfit

SETTLE = "settings of the role"
INDEX = "index ready_type"


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    address = parse(url)
    connection = await connect_to_migrate(address)
    try:
        await refuse_unfit(connection, address)
        steps = await plan_steps(connection, address)
        if steps and not plan:
            await take_steps(connection, address, steps)
        return steps
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        connection.terminate()


async def plan_steps(connection: asyncpg.Connection, address: PostgresDsn) -> list[str]:
    steps = [f"migration {each.number} {each.name}" for each in await find_missing(connection)]
    if address.pooler and await find_forgotten_settings(connection):
        steps.append(SETTLE)
    if await read_applied(connection) and await type_index.is_missing(connection):
        steps.append(INDEX)
    return steps


async def take_steps(
    connection: asyncpg.Connection, address: PostgresDsn, steps: list[str]
) -> None:
    await migrate(address)
    if SETTLE in steps:
        await keep_settings(connection, SETTINGS)
    if INDEX in steps:
        await type_index.repair(connection, address)


async def find_forgotten_settings(connection: asyncpg.Connection) -> bool:
    rows = await connection.fetch("SELECT name, setting FROM pg_settings")
    shown = {row["name"]: row["setting"] for row in rows}
    return any(shown[name] != value for name, value in SETTINGS.items())
