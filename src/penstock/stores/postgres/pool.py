"""A few connections of asyncpg."""

import asyncpg

from penstock.errors import PenstockError
from penstock.stores import pool
from penstock.stores.postgres.trouble import gone


def harmless(error: BaseException) -> bool:
    """The session goes on as if nothing had happened."""
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        # Another server may write by now, and a new connection finds it.
        return False
    return isinstance(error, PenstockError | asyncpg.PostgresError) and not gone(error)


class Pool(pool.Pool[asyncpg.Connection]):
    def harmless(self, error: BaseException) -> bool:
        return harmless(error)

    async def leave(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.close(timeout=1.0)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
