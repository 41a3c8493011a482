"""Brings the schema up to date while workers of the old code and of the new one go on."""

import asyncpg

from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.transaction import Transaction
from penstock.stores.sql import registry

MIGRATIONS = migrations.load("penstock.stores.postgres")
SCHEMA = MIGRATIONS[-1].number
# One process at a time; the number means nothing.
TURN = 5_046_911_470
FOUND = """
CREATE SCHEMA IF NOT EXISTS penstock;
CREATE TABLE IF NOT EXISTS penstock.migration (
    number int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, floor int NOT NULL,
    at timestamptz NOT NULL DEFAULT now());
"""
RECORD = "INSERT INTO penstock.migration (number, name, checksum, floor) VALUES ($1, $2, $3, $4)"
# Behind a pooler a session's settings do not last: those of the role in this database do.
KEEP = """
DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET {} TO {}',
                           current_database()); END $$
"""


async def applied(connection: asyncpg.Connection) -> dict[int, str]:
    """The checksum of each migration that is done; none at all in a new database."""
    if await connection.fetchval("SELECT to_regclass('penstock.migration')") is None:
        return {}
    rows = await connection.fetch("SELECT number, checksum FROM penstock.migration")
    return {number: checksum for number, checksum in rows}


async def floor(connection: asyncpg.Connection) -> int:
    """The oldest code that may still write here."""
    number = await connection.fetchval("SELECT max(floor) FROM penstock.migration")
    return number or 0


async def missing(
    connection: asyncpg.Connection, known: list[Migration] = MIGRATIONS
) -> list[Migration]:
    """What is to be applied; raises if this code may not write here."""
    done = await applied(connection)
    return migrations.missing(known, done, await floor(connection) if done else 0)


async def migrate(
    connection: asyncpg.Connection, known: list[Migration] = MIGRATIONS
) -> list[Migration]:
    """What was applied. Killed at any point, the next one goes on."""
    await connection.execute("SELECT pg_advisory_lock($1)", TURN)
    try:
        await connection.execute(FOUND)
        to_do = await missing(connection, known)
        for migration in to_do:
            await apply(connection, migration)
        return to_do
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", TURN)


async def apply(connection: asyncpg.Connection, migration: Migration) -> None:
    row = (migration.number, migration.name, migration.checksum, migration.floor)
    if migration.online:
        # Each by itself, and harmless when it is done again.
        for statement in migration.text.split(";\n"):
            if statement.strip():
                await connection.execute(statement)
        await connection.execute(RECORD, *row)
        return
    async with connection.transaction():
        await connection.execute(migration.text)
        await connection.execute(RECORD, *row)
        now = await connection.fetchval("SELECT penstock.moment()")
        await registry.found_default(Transaction(connection, now))


async def keep_settings(connection: asyncpg.Connection, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        await connection.execute(KEEP.format(name, value))


async def connect_to_migrate(address: Address) -> asyncpg.Connection:
    """No statement of a migration may keep others waiting for long."""
    return await address.connect_with({"lock_timeout": "1000", "synchronous_commit": "on"})
