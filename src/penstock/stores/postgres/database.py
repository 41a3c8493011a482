"""Runs transactions and statements on pooled connections, with retries and time limits."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import asyncpg

from penstock.errors import NotYet, PenstockError
from penstock.store import Capabilities
from penstock.stores.postgres.claim_cursor import ClaimCursor
from penstock.stores.postgres.connection import PostgresPool
from penstock.stores.postgres.dsn import PostgresDsn
from penstock.stores.postgres.errors import (
    CONFLICT_ERRORS,
    ERRORS,
    is_connection_gone,
    translate_error,
)
from penstock.stores.postgres.notifier import PostgresNotifier
from penstock.stores.postgres.statement import SQL, PostgresStatement
from penstock.stores.postgres.transaction import DEADLINE, PostgresTransaction
from penstock.stores.server_handle import ServerHandle

P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Callable[Concatenate[PostgresTransaction, P], Coroutine[Any, Any, T]]
# Transactions that read and then write may wait for locks, in milliseconds.
BEGIN = "BEGIN; SET LOCAL lock_timeout = 2000"
# A shorter wait for transactions that others queue behind.
BEGIN_BRIEFLY = "BEGIN; SET LOCAL lock_timeout = 250"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Attempts after a conflict with another transaction.
MAX_TRIES = 5


class PostgresDatabase(ServerHandle):
    def __init__(self, address: PostgresDsn, seal: str) -> None:
        super().__init__(address.where)
        self.address = address
        # Identifies the store, to check that a caller's connection is to the same one.
        self.seal = seal
        self.capabilities = Capabilities("postgres", address.durability)
        self.pool = PostgresPool(address.connect, address.pool_size, DEADLINE)
        self.waiters = PostgresNotifier(address.connect_aside, listens=not address.pooler)
        self.lines: dict[int, ClaimCursor] = {}

    async def let_go(self) -> None:
        await self.waiters.close()
        await self.pool.close()

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.where}: back it up with pg_dump, which needs no downtime")

    async def fetch(self, statement: str, /, **values: Any) -> list[Any]:
        """Runs one statement in autocommit mode."""
        return await self.ask(SQL[statement], values)

    async def ask(self, statement: PostgresStatement, values: dict[str, Any]) -> list[Any]:
        self.refuse_closed()
        try:
            async with self.pool.use() as connection:
                return await connection.fetch(
                    statement.text, *statement.values(values), timeout=DEADLINE
                )
        except ERRORS as error:
            raise translate_error(error, self.where, sent=statement.writes) from error

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write_by(BEGIN, work, *args, **kwargs)

    async def write_by(self, begin: str, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        tries = 1
        while True:
            try:
                return await self.write_once(begin, work, *args, **kwargs)
            except CONFLICT_ERRORS as error:
                if tries == MAX_TRIES:
                    raise translate_error(error, self.where) from error
                tries += 1
            except ERRORS as error:
                raise translate_error(error, self.where) from error

    async def write_once(
        self, begin: str, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self.transaction(begin) as tx:
            value = await work(tx, *args, **kwargs)
        self.waiters.tell(tx.woken)
        return value

    async def look(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.read(work, *args, **kwargs)

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            async with self.transaction(BEGIN_READING) as tx:
                return await work(tx, *args, **kwargs)
        except ERRORS as error:
            raise translate_error(error, self.where) from error

    @asynccontextmanager
    async def transaction(self, begin: str) -> AsyncIterator[PostgresTransaction]:
        self.refuse_closed()
        async with self.pool.use() as connection:
            await connection.execute(begin, timeout=DEADLINE)
            try:
                now = await connection.fetchval(SQL["moment"].text, timeout=DEADLINE)
                yield PostgresTransaction(connection, now)
            except (PenstockError, asyncpg.PostgresError):
                if not connection.is_closed():
                    await connection.execute("ROLLBACK", timeout=DEADLINE)
                raise
            await self.commit(connection, sent=begin is not BEGIN_READING)

    async def commit(self, connection: asyncpg.Connection, *, sent: bool) -> None:
        """Commits. Only here a lost answer leaves the outcome unknown."""
        try:
            await connection.execute("COMMIT", timeout=DEADLINE)
        except ERRORS as error:
            if not is_connection_gone(error):
                raise
            connection.terminate()
            raise translate_error(error, self.where, sent=sent) from error
