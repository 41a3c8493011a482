"""Builds and repairs the index that claims by type use."""

import asyncio

import asyncpg

from penstock.stores.postgres.dsn import PostgresDsn
from penstock.stores.postgres.errors import ERRORS, translate_error
from penstock.stores.postgres.migrate import connect_to_migrate, drop_unfinished, migration_turn
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.transaction import DEADLINE


async def build(address: PostgresDsn) -> None:
    """Leaves a long build to the server; claims do without the index until it is valid."""
    connection = await connect_to_migrate(address)
    building = asyncio.ensure_future(connection.execute(SQL["index_types"].text))
    try:
        await asyncio.wait([building], timeout=DEADLINE)
        if building.done():
            building.result()
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    finally:
        # Cancelling would leave the index half-built.
        connection.terminate()
        await asyncio.gather(building, return_exceptions=True)


async def repair(connection: asyncpg.Connection, address: PostgresDsn) -> None:
    """Rebuilds a missing or half-built index, without a time limit."""
    async with migration_turn(address):
        await drop_unfinished(connection)
        await connection.execute(SQL["index_types"].text)


async def is_missing(connection: asyncpg.Connection) -> bool:
    """True if a queue is claimed by type and the index is missing or half-built."""
    found: bool = await connection.fetchval(SQL["index_lacking"].text)
    return found
