"""A few connections of asyncpg."""

import asyncpg

from penstock.errors import PenstockError
from penstock.stores import pool
from penstock.stores.postgres.trouble import is_connection_gone


def is_harmless(error: BaseException) -> bool:
    """The session goes on as if nothing had happened."""
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        # Another server may write by now, and a new connection finds it.
        return False
    return isinstance(error, PenstockError | asyncpg.PostgresError) and not is_connection_gone(
        error
    )


class PostgresPool(pool.ConnectionPool[asyncpg.Connection]):
    def is_harmless(self, error: BaseException) -> bool:
        return is_harmless(error)

    async def leave(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.close(timeout=1.0)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
