"""Opens, creates and migrates a PostgreSQL store by its URL."""

import asyncio
from functools import partial
from typing import TypeAlias

import asyncpg

from penstock.errors import InvalidInput, StoreUnusable
from penstock.model.store_types import Claim
from penstock.store import Capabilities, Clock
from penstock.stores.migrations import Migration
from penstock.stores.postgres.connection import (
    CALL_TIMEOUT_S,
    SETTINGS,
    PostgresDsn,
    PostgresPool,
    parse,
)
from penstock.stores.postgres.dialect import PostgresDialect, make_completion, make_terms
from penstock.stores.postgres.errors import ERRORS, is_connection_gone, translate_error
from penstock.stores.postgres.notifier import PostgresNotifier
from penstock.stores.postgres.schema import (
    connect_to_migrate,
    find_missing,
    keep_settings,
    lacks_type_index,
    migrate,
    migration_turn,
    read_applied,
    refuse_incomplete,
    repair_type_index,
)
from penstock.stores.postgres.transaction import SQL, PostgresDriver, PostgresTransaction
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.server_verbs import ServerVerbs
from penstock.stores.sql.store import SqlStore

PostgresStore: TypeAlias = SqlStore[
    ServerDatabase[asyncpg.Connection, PostgresTransaction], PostgresNotifier, PostgresDialect
]
# No queue has id 0.
WARM_UP = (("pick_one", make_terms(Claim((0,), ""))), make_completion(()))
MIN_VERSION = 130_000
# Server settings under which a commit survives a power failure.
NEEDED = ("fsync", "full_page_writes")
SETTLE = "settings of the role"
INDEX = "index ready_type"


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
    return make_store(address, secret)


def make_store(address: PostgresDsn, seal: str) -> PostgresStore:
    notifier = PostgresNotifier(address.connect_aside, listens=not address.pooler)
    database: ServerDatabase[asyncpg.Connection, PostgresTransaction] = ServerDatabase(
        address.where,
        Capabilities("postgres", address.durability),
        PostgresPool(partial(connect_warm, address), address.pool_size, CALL_TIMEOUT_S),
        PostgresDriver(address.where),
        notifier,
    )
    dialect = PostgresDialect(database, notifier, address, seal)
    return SqlStore(database, notifier, dialect, ServerVerbs(database, dialect))


async def connect_warm(address: PostgresDsn) -> asyncpg.Connection:
    """Opens a connection with the hot statements prepared, by claiming and completing nothing.

    Otherwise the first message on each connection waits for it. A pooler prepares nothing.
    """
    connection = await address.connect()
    if not address.pooler:
        try:
            for name, values in WARM_UP:
                text, names = SQL[name]
                await connection.fetch(
                    text, *[values[each] for each in names], timeout=CALL_TIMEOUT_S
                )
        except ERRORS as error:
            # A server that is read-only refuses the claim, and can be read all the same.
            if is_connection_gone(error):
                connection.terminate()
                raise translate_error(error, address.where) from error
        except asyncio.CancelledError:
            # The store was closed meanwhile.
            connection.terminate()
            raise
    return connection


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
    if int(await connection.fetchval("SHOW server_version_num")) < MIN_VERSION:
        raise StoreUnusable(f"PostgreSQL {version} is too old; 13 or newer is needed")
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise StoreUnusable("it is a read-only replica; use the primary")
    off = [name for name in NEEDED if await connection.fetchval(f"SHOW {name}") != "on"]
    if off and address.durability == "safe":
        raise StoreUnusable(
            f"the server has {' and '.join(off)} off, so a power failure could lose messages;"
            " turn it on or set durability=fast in the URL"
        )


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
    if await read_applied(connection) and await lacks_type_index(connection):
        steps.append(INDEX)
    return steps


async def take_steps(
    connection: asyncpg.Connection, address: PostgresDsn, steps: list[str]
) -> None:
    await migrate(address)
    if SETTLE in steps:
        await keep_settings(connection, SETTINGS)
    if INDEX in steps:
        await repair_type_index(connection, address)


async def find_forgotten_settings(connection: asyncpg.Connection) -> bool:
    rows = await connection.fetch("SELECT name, setting FROM pg_settings")
    shown = {row["name"]: row["setting"] for row in rows}
    return any(shown[name] != value for name, value in SETTINGS.items())
