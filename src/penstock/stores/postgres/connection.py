"""A connection that a copy of the process leaves alone."""

import os
from typing import Any

import asyncpg

from penstock.errors import PenstockError
from penstock.stores import pool
from penstock.stores.postgres.errors import is_connection_gone


class PostgresConnection(asyncpg.Connection):
    """A forked child has copies of its parent's sessions, and shares what its loop watches them
    with: ending a copy, as Python does at the end, would make the parent deaf."""

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
