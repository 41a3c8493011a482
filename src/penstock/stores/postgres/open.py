"""Opens a PostgreSQL store by its URL."""

import asyncpg

from penstock.errors import InvalidInput, StoreUnusable
from penstock.store import Clock
from penstock.stores.migrations import Migration
from penstock.stores.postgres.dsn import SETTINGS, PostgresDsn, parse
from penstock.stores.postgres.errors import ERRORS, translate_error
from penstock.stores.postgres.migrate import (
    find_missing,
    keep_settings,
    migrate,
    migration_turn,
    read_applied,
)
from penstock.stores.postgres.schema import refuse_incomplete
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.store import PostgresStore

OLDEST = 130_000
# Server settings under which a commit survives a power cut.
NEEDED = ("fsync", "full_page_writes")


async def open_store(url: str, *, clock: Clock | None = None) -> PostgresStore:
    if clock is not None:
        raise InvalidInput("a PostgreSQL store uses the server's clock")
    address = parse(url)
    connection = await address.connect()
    try:
        await refuse_unfit(connection, address)
        if not await read_applied(connection):
            await migrate(address)
            if address.pooler:
                await keep_settings(connection, SETTINGS)
        elif to_do := await wait_for_migrations(connection, address):
            names = ", ".join(migration.name for migration in to_do)
            raise StoreUnusable(f"{names} must be applied first; run penstock migrate")
        await refuse_incomplete(connection)
        secret = await connection.fetchval(SQL["fact"].text, "secret")
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        connection.terminate()
    return PostgresStore(address, secret)


async def wait_for_migrations(
    connection: asyncpg.Connection, address: PostgresDsn
) -> list[Migration]:
    """Waits for another process that is creating or migrating the store."""
    if not await find_missing(connection):
        return []
    async with migration_turn(address):
        return await find_missing(connection)


async def exists(url: str) -> bool:
    address = parse(url)
    connection = await address.connect()
    try:
        return bool(await read_applied(connection))
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    finally:
        connection.terminate()


async def refuse_unfit(connection: asyncpg.Connection, address: PostgresDsn) -> None:
    version = connection.get_settings().server_version
    if int(await connection.fetchval("SHOW server_version_num")) < OLDEST:
        raise StoreUnusable(f"PostgreSQL {version} is too old; 13 or newer is needed")
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise StoreUnusable("it is a read-only replica; use the primary")
    off = [name for name in NEEDED if await connection.fetchval(f"SHOW {name}") != "on"]
    if off and address.durability == "safe":
        raise StoreUnusable(
            f"the server has {' and '.join(off)} off, so a power cut could lose messages;"
            " turn it on or set durability=fast in the URL"
        )
