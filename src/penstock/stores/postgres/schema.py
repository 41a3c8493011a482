"""Whether a schema still has every column that its migrations made."""

import asyncio

import asyncpg

from penstock.errors import StoreUnusable
from penstock.stores.postgres.dsn import PostgresDsn
from penstock.stores.postgres.errors import ERRORS, translate_error
from penstock.stores.postgres.migrate import connect_to_migrate, drop_unfinished, migration_turn
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.transaction import DEADLINE

HELD = """
SELECT relname || '.' || attname AS name
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = to_regnamespace('penstock') AND relkind IN ('r', 'p')
    AND attnum > 0 AND NOT attisdropped
"""
# By whoever migrates, so that older code knows what newer code has dropped.
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


async def refuse_incomplete(connection: asyncpg.Connection) -> None:
    """At once, and not when some statement first needs what is gone."""
    if lost := await connection.fetchval(LOST):
        raise StoreUnusable(f"no column {lost}; restore a backup")


async def build(address: PostgresDsn) -> None:
    """What takes long is left to the server, which goes on; claims do without until it is there."""
    connection = await connect_to_migrate(address)
    building = asyncio.ensure_future(connection.execute(SQL["index_types"].text))
    try:
        await asyncio.wait([building], timeout=DEADLINE)
        if building.done():
            building.result()
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    finally:
        # Not cancelled, which would leave it half-built.
        connection.terminate()
        await asyncio.gather(building, return_exceptions=True)


async def repair(connection: asyncpg.Connection, address: PostgresDsn) -> None:
    """However long it takes."""
    async with migration_turn(address):
        await drop_unfinished(connection)
        await connection.execute(SQL["index_types"].text)


async def is_missing(connection: asyncpg.Connection) -> bool:
    """Somebody claims by type, and it is not there, or half-built."""
    found: bool = await connection.fetchval(SQL["index_lacking"].text)
    return found
