"""A pooled connection that a forked child does not close."""

import os
from typing import Any

import asyncpg

from penstock.errors import PenstockError
from penstock.stores import pool
from penstock.stores.postgres.errors import is_connection_gone


class PostgresConnection(asyncpg.Connection):
    """A connection that is safe to inherit.

    A forked child shares the parent's epoll; closing the copy, as Python does at exit, would
    unregister the parent's socket."""

    __slots__ = ("process",)

    def __init__(self, *parts: Any, **named_parts: Any) -> None:
        self.process = os.getpid()
        super().__init__(*parts, **named_parts)

    def terminate(self) -> None:
        if self.process == os.getpid():
            super().terminate()

    def __del__(self) -> None:
        if self.process == os.getpid():
            super().__del__()


def is_harmless(error: BaseException) -> bool:
    """True if the session can be reused after this error."""
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        # After a failover another server accepts writes; a new connection finds it.
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
