"""Migrates and checks the schema, and builds the index for claims by type.

Migrations run while old and new workers keep running. DDL commits implicitly in MariaDB, so every
statement of a migration is idempotent: two processes may migrate at once, and a killed migration
is resumed.
"""

from penstock.errors import StoreUnusable
from penstock.stores import migrations
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.statement import fill_statement, to_literal
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
MIGRATED = "SHOW TABLES LIKE 'penstock\\_migration'"
# DDL waits for tables in use, and other sessions queue behind it; seconds.
SET_LOCK_TIMEOUT = "SET SESSION innodb_lock_wait_timeout = 10, SESSION lock_wait_timeout = 10"
IN_LINE = "SELECT slot FROM penstock_guard WHERE slot = 0 FOR UPDATE"
TABLE_PREFIX = "penstock_"
HELD = f"""
SELECT concat(substr(table_name, {len(TABLE_PREFIX) + 1}), '.', column_name)
FROM information_schema.columns
WHERE table_schema = database() AND table_name LIKE 'penstock\\_%'
"""
NOTED = "SELECT value FROM penstock_fact WHERE name = 'columns'"
WANTED = """
SELECT count(*) FROM penstock_queue
WHERE state <> 'deleted' AND json_value(settings, '$.filter_by_type') = 1
"""
TYPE_INDEX = """
SELECT count(*) FROM information_schema.statistics
WHERE table_schema = database() AND table_name = 'penstock_ready' AND index_name = 'type'
"""


async def read_applied(session: MariaConnection) -> dict[int, str]:
    """Returns the checksums of applied migrations; empty for a new database."""
    if not await session.rows(MIGRATED):
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
    await note_columns(session)
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


async def note_columns(session: MariaConnection) -> None:
    """Records the columns after a migration, so that older code knows which were dropped."""
    names = sorted(await read_columns(session))
    await session.send(fill_statement("fact_set", name="columns", value=",".join(names)))


async def refuse_incomplete(session: MariaConnection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    noted = {name for (names,) in await session.rows(NOTED) for name in names.split(",")}
    if lost := sorted(noted - await read_columns(session)):
        raise StoreUnusable(f"the schema lacks column {', '.join(lost)}; restore a backup")


async def read_columns(session: MariaConnection) -> set[str]:
    return {name for (name,) in await session.rows(HELD)}


async def has_type_index(session: MariaConnection) -> bool:
    return bool((await session.rows(TYPE_INDEX))[0][0])


async def lacks_type_index(session: MariaConnection) -> bool:
    """True if a queue is claimed by type and the index is missing."""
    wanted = bool((await session.rows(WANTED))[0][0])
    return wanted and not await has_type_index(session)


async def build_type_index(session: MariaConnection) -> None:
    # Building the index may take long.
    session.deadline = None
    await session.send(fill_statement("index_types"))
