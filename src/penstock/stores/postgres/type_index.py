"""The index for claims by type: made when a queue asks for it, beside the traffic."""

import asyncio

import asyncpg

from penstock.stores.postgres.address import Address
from penstock.stores.postgres.migrate import connect_to_migrate, drop_unfinished, turn
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.transaction import DEADLINE
from penstock.stores.postgres.trouble import ERRORS, named


async def build(address: Address) -> None:
    """What takes long is left to the server, which goes on; claims do without until it is there."""
    connection = await connect_to_migrate(address)
    building = asyncio.ensure_future(connection.execute(SQL["index_types"].text))
    try:
        await asyncio.wait([building], timeout=DEADLINE)
        if building.done():
            building.result()
    except ERRORS as error:
        raise named(error, address.where) from error
    finally:
        # Not cancelled, which would leave it half-built.
        connection.terminate()
        await asyncio.gather(building, return_exceptions=True)


async def repair(connection: asyncpg.Connection, address: Address) -> None:
    """However long it takes."""
    async with turn(address):
        await drop_unfinished(connection)
        await connection.execute(SQL["index_types"].text)


async def lacking(connection: asyncpg.Connection) -> bool:
    """Somebody claims by type, and it is not there, or half-built."""
    found: bool = await connection.fetchval(SQL["index_lacking"].text)
    return found
