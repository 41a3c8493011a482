"""The index for claims by type: made when a queue asks for it, beside the traffic."""

import asyncpg

from penstock.stores.postgres.address import Address
from penstock.stores.postgres.migrate import connect_to_migrate, drop_unfinished, turn
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.transaction import DEADLINE
from penstock.stores.postgres.trouble import ERRORS, named


async def build(address: Address) -> None:
    """What takes too long is left half-built: claims do without, and the doctor tells."""
    connection = await connect_to_migrate(address)
    try:
        await connection.execute(SQL["index_types"].text, timeout=DEADLINE)
    except TimeoutError:
        pass
    except ERRORS as error:
        raise named(error, address.where) from error
    finally:
        connection.terminate()


async def repair(connection: asyncpg.Connection, address: Address) -> None:
    """However long it takes."""
    async with turn(address):
        await drop_unfinished(connection)
        await connection.execute(SQL["index_types"].text)


async def lacking(connection: asyncpg.Connection) -> bool:
    """Somebody claims by type, and it is not there, or half-built."""
    found: bool = await connection.fetchval(SQL["index_lacking"].text)
    return found
