"""Migrates and checks the schema, and builds the index for claims by type.

Migrations run while old and new workers keep running.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from penstock.errors import StoreBusy, StoreUnusable
from penstock.retry_policies import MIGRATION_TURN, Retries
from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.postgres.connection import CALL_TIMEOUT_S, PostgresDsn
from penstock.stores.postgres.errors import ERRORS, translate_error
from penstock.stores.postgres.transaction import SQL, PostgresTransaction
from penstock.stores.sql import queues

MIGRATIONS = migrations.load("penstock.stores.postgres")
SCHEMA = MIGRATIONS[-1].number
# An arbitrary advisory lock id.
MIGRATION_LOCK_ID = 5_046_911_470
# Later sessions queue behind a waiting DDL statement, so it must not wait long.
BRIEFLY = "SET LOCAL lock_timeout = 1000"
INVALID_INDEXES = """
SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = to_regnamespace('penstock') AND NOT indisvalid
"""
FOUND = """
CREATE SCHEMA IF NOT EXISTS penstock;
CREATE TABLE IF NOT EXISTS penstock.migration (
    number int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, floor int NOT NULL,
    at timestamptz NOT NULL DEFAULT now());
"""
RECORD = "INSERT INTO penstock.migration (number, name, checksum, floor) VALUES ($1, $2, $3, $4)"
# Session settings do not survive a pooler; the role's settings in this database do.
KEEP = """
DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET {} TO {}',
                           current_database()); END $$
"""
HELD = """
SELECT relname || '.' || attname AS name
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = to_regnamespace('penstock') AND relkind IN ('r', 'p')
    AND attnum > 0 AND NOT attisdropped
"""
# Recorded after a migration, so that older code knows which columns were dropped.
NOTE = f"""
INSERT INTO penstock.fact (name, value)
SELECT 'columns', string_agg(name, ',') FROM ({HELD}) AS held
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
LOST = f"""
SELECT string_agg(noted, ', ' ORDER BY noted)
FROM penstock.fact, unnest(string_to_array(value, ',')) AS noted
WHERE name = 'columns' AND noted NOT IN ({HELD})
"""


async def read_applied(connection: asyncpg.Connection) -> dict[int, str]:
    """Returns the checksums of applied migrations; empty for a new database."""
    if await connection.fetchval("SELECT to_regclass('penstock.migration')") is None:
        return {}
    rows = await connection.fetch("SELECT number, checksum FROM penstock.migration")
    return {number: checksum for number, checksum in rows}


async def read_floor(connection: asyncpg.Connection) -> int:
    """Returns the oldest schema whose code may still write."""
    number = await connection.fetchval("SELECT max(floor) FROM penstock.migration")
    return number or 0


async def find_missing(
    connection: asyncpg.Connection, known: list[Migration] = MIGRATIONS
) -> list[Migration]:
    """Returns the migrations to apply; raises if this version may not write."""
    done = await read_applied(connection)
    return migrations.find_missing(known, done, await read_floor(connection) if done else 0)


async def migrate(address: PostgresDsn, known: list[Migration] = MIGRATIONS) -> list[Migration]:
    """Applies missing migrations and returns them; a killed run is resumed by the next."""
    connection = await connect_to_migrate(address)
    try:
        async with migration_turn(address):
            fresh = not await read_applied(connection)
            if fresh:
                await connection.execute(FOUND)
            to_do = await find_missing(connection, known)
            for migration in to_do:
                await apply(connection, migration, fresh=fresh)
            return to_do
    finally:
        connection.terminate()


@asynccontextmanager
async def migration_turn(address: PostgresDsn) -> AsyncIterator[None]:
    """Lets one process migrate at a time, by a transaction lock, which works behind a pooler."""
    connection = await connect_to_migrate(address)
    try:
        retries: Retries | None = None
        while not await take_turn(connection):
            retries = retries or MIGRATION_TURN.begin()
            if not await retries.again():
                raise StoreBusy(f"{address.where}: another process is migrating it; try again")
        yield
    finally:
        connection.terminate()


async def take_turn(connection: asyncpg.Connection) -> bool:
    """Takes the lock without keeping a snapshot, which CREATE INDEX CONCURRENTLY waits for."""
    await connection.execute("BEGIN")
    if await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", MIGRATION_LOCK_ID):
        # Closes the portal of the previous query, which holds a snapshot.
        await connection.execute("SELECT 1")
        return True
    await connection.execute("ROLLBACK")
    return False


async def apply(connection: asyncpg.Connection, migration: Migration, *, fresh: bool) -> None:
    if migration.online and not fresh:
        await apply_online(connection, migration)
        return
    # An index of an empty table takes no time. Built concurrently, it would wait for every older
    # transaction of the database, also of other programs.
    text = migration.text.replace(" CONCURRENTLY", "")
    async with connection.transaction():
        await connection.execute(BRIEFLY)
        await connection.execute(text)
        await record(connection, migration)
        now = await connection.fetchval("SELECT penstock.moment()")
        await queues.create_defaults(PostgresTransaction(connection, now))


async def apply_online(connection: asyncpg.Connection, migration: Migration) -> None:
    """Runs outside a transaction; each statement is idempotent."""
    await drop_unfinished(connection)
    for statement in migration.text.split(";\n"):
        if statement.strip():
            await connection.execute(statement)
    await record(connection, migration)


async def record(connection: asyncpg.Connection, migration: Migration) -> None:
    await connection.execute(NOTE)
    row = (migration.number, migration.name, migration.checksum, migration.floor)
    await connection.execute(RECORD, *row)


async def drop_unfinished(connection: asyncpg.Connection) -> None:
    """Drops half-built indexes, which IF NOT EXISTS would take for existing ones."""
    for (name,) in await connection.fetch(INVALID_INDEXES):
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


async def keep_settings(connection: asyncpg.Connection, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        await connection.execute(KEEP.format(name, value))


async def connect_to_migrate(address: PostgresDsn) -> asyncpg.Connection:
    """Opens a connection without a lock timeout."""
    return await address.connect_with({"lock_timeout": "0", "synchronous_commit": "on"})


async def refuse_incomplete(connection: asyncpg.Connection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    if lost := await connection.fetchval(LOST):
        raise StoreUnusable(f"the schema lacks column {lost}; restore a backup")


async def build_type_index(address: PostgresDsn) -> None:
    """Leaves a long build to the server; claims do without the index until it is valid."""
    connection = await connect_to_migrate(address)
    building = asyncio.ensure_future(connection.execute(SQL["index_types"].text))
    try:
        await asyncio.wait([building], timeout=CALL_TIMEOUT_S)
        if building.done():
            building.result()
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    finally:
        # Cancelling would leave the index half-built.
        connection.terminate()
        await asyncio.gather(building, return_exceptions=True)


async def repair_type_index(connection: asyncpg.Connection, address: PostgresDsn) -> None:
    """Rebuilds a missing or half-built index, without a time limit."""
    async with migration_turn(address):
        await drop_unfinished(connection)
        await connection.execute(SQL["index_types"].text)


async def lacks_type_index(connection: asyncpg.Connection) -> bool:
    """True if a queue is claimed by type and the index is missing or half-built."""
    found: bool = await connection.fetchval(SQL["index_lacking"].text)
    return found
