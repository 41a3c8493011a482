"""Adapts callers' PostgreSQL connections and runs our statements in their transactions."""

import sys
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from penstock.errors import InvalidInput, StoreError
from penstock.stores import driver_adapters
from penstock.stores.postgres.notifier import CHANNEL
from penstock.stores.postgres.transaction import NAMED, SQL, TEXTS, Locks
from penstock.stores.sql import caller_transaction
from penstock.stores.sql.caller_transaction import ELSEWHERE, Notify

# The statements for drivers with %(name)s parameters.
FORMATTED = {name: NAMED.sub(r"%(\1)s", text.replace("%", "%%")) for name, text in TEXTS.items()}
IDLE = 0


class PostgresDriverConnection(driver_adapters.DriverConnection):
    @abstractmethod
    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]: ...


class AsyncpgConnection(PostgresDriverConnection):
    waits = True
    errors = (asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.alone = not connection.is_in_transaction()

    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        text, given = SQL[statement].text, SQL[statement].values(values)
        rows: list[Any] = await self.connection.fetch(text, *given)
        return rows

    async def say(self, text: str) -> None:
        await self.connection.execute(text)


class PsycopgConnection(PostgresDriverConnection):
    def __init__(self, connection: Any, psycopg: Any) -> None:
        super().__init__(connection)
        self.errors = (psycopg.Error,)
        self.rows = psycopg.rows.tuple_row
        self.alone = connection.autocommit and connection.info.transaction_status == IDLE

    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        with self.connection.cursor(row_factory=self.rows) as cursor:
            cursor.execute(FORMATTED[statement], values)
            rows: list[Any] = cursor.fetchall() if cursor.description else []
            return rows

    async def say(self, text: str) -> None:
        self.connection.execute(text)


class AsyncPsycopgConnection(PsycopgConnection):
    waits = True

    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        async with self.connection.cursor(row_factory=self.rows) as cursor:
            await cursor.execute(FORMATTED[statement], values)
            rows: list[Any] = await cursor.fetchall() if cursor.description else []
            return rows

    async def say(self, text: str) -> None:
        await self.connection.execute(text)


def adapt_driver(connection: Any) -> PostgresDriverConnection | None:
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return AsyncpgConnection(connection)
    return adapt_psycopg(connection) or adapt_django(connection)


def adapt_psycopg(connection: Any) -> PostgresDriverConnection | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None:
        return None
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgConnection(connection, psycopg)
    return (
        PsycopgConnection(connection, psycopg)
        if isinstance(connection, psycopg.Connection)
        else None
    )


def adapt_django(connection: Any) -> PostgresDriverConnection | None:
    if "django.db" not in sys.modules or not hasattr(connection, "in_atomic_block"):
        return None
    connection.ensure_connection()
    caller = adapt_psycopg(connection.connection)
    if caller is not None and connection.in_atomic_block:
        caller.on_commit = connection.on_commit
    return caller


KINDS = driver_adapters.DriverAdapters("asyncpg, psycopg, SQLAlchemy or Django", adapt_driver)


# No such table, schema or function.
ABSENT = ("42P01", "3F000", "42883")


class PostgresCallerTransaction(
    caller_transaction.CallerTransaction[PostgresDriverConnection], Locks
):
    __slots__ = ()

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.caller.ask(statement, values)

    async def notify_at_commit(self, notify: Notify) -> None:
        """Uses NOTIFY inside the transaction if the driver has no commit hook."""
        if self.caller.on_commit is not None:
            await super().notify_at_commit(notify)
        else:
            queues = ",".join(map(str, self.woken))
            await self.caller.ask("notify", {"channel": CHANNEL, "queues": queues})


@asynccontextmanager
async def enter_transaction(
    caller: PostgresDriverConnection, seal: str
) -> AsyncIterator[PostgresCallerTransaction]:
    try:
        async with caller_transaction.savepoint(caller):
            ((now, found),) = await caller.ask("here", {})
            if found != seal:
                raise InvalidInput(ELSEWHERE)
            yield PostgresCallerTransaction(caller, now)
    except caller.errors as error:
        if getattr(error, "sqlstate", None) in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        raise StoreError(f"a statement failed on your connection: {error}") from error
