"""Migrates the schema while old and new workers keep running.

DDL commits implicitly in MariaDB, so every statement of a migration is idempotent: two processes
may migrate at once, and a killed migration is resumed.
"""

from penstock.stores import migrations
from penstock.stores.mariadb import schema
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.statement import to_literal
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.migrations import Migration
from penstock.stores.sql import queues

MIGRATIONS = migrations.load("penstock.stores.mariadb")
SCHEMA = MIGRATIONS[-1].number
FOUND = """
CREATE TABLE IF NOT EXISTS penstock_migration (
    number INT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, floor INT NOT NULL,
    at TIMESTAMP NOT NULL DEFAULT current_timestamp) ENGINE InnoDB COLLATE utf8mb4_nopad_bin
"""
THERE = "SHOW TABLES LIKE 'penstock\\_migration'"
# DDL waits for tables in use, and other sessions queue behind it; seconds.
SET_LOCK_TIMEOUT = "SET SESSION innodb_lock_wait_timeout = 10, SESSION lock_wait_timeout = 10"
IN_LINE = "SELECT slot FROM penstock_guard WHERE slot = 0 FOR UPDATE"


async def read_applied(session: MariaConnection) -> dict[int, str]:
    """Returns the checksums of applied migrations; empty for a new database."""
    if not await session.rows(THERE):
        return {}
    return dict(await session.rows("SELECT number, checksum FROM penstock_migration"))


async def read_floor(session: MariaConnection) -> int:
    """Returns the oldest schema whose code may still write."""
    ((number,),) = await session.rows("SELECT max(floor) FROM penstock_migration")
    return number or 0


async def find_missing(
    session: MariaConnection, known: list[Migration] = MIGRATIONS
) -> list[Migration]:
    """Returns the migrations to apply; raises if this version may not write."""
    done = await read_applied(session)
    return migrations.find_missing(known, done, await read_floor(session) if done else 0)


async def migrate(
    session: MariaConnection, moment: str, known: list[Migration] = MIGRATIONS
) -> list[Migration]:
    """Applies missing migrations and returns them."""
    session.deadline = None
    await session.send(SET_LOCK_TIMEOUT, FOUND)
    to_do = await find_missing(session, known)
    for migration in to_do:
        await apply(session, moment, migration)
    await schema.note(session)
    return to_do


async def apply(session: MariaConnection, moment: str, migration: Migration) -> None:
    for statement in migration.text.split(";\n"):
        if statement.strip():
            await session.send(statement)
    # Serialized, so that a concurrent process finds the defaults already created.
    ((now,),) = await session.rows("START TRANSACTION", IN_LINE, f"SELECT {moment}")
    tx = MariaTransaction(session, now)
    await queues.create_defaults(tx)
    row = (migration.number, migration.name, migration.checksum, migration.floor)
    values = ", ".join(map(to_literal, row))
    await tx.send(
        f"INSERT IGNORE INTO penstock_migration (number, name, checksum, floor) VALUES ({values})",
        "COMMIT",
    )
