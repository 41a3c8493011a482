"""Callers' connections to PostgreSQL, as one."""

import sys
from abc import abstractmethod
from typing import Any

import asyncpg

from penstock.stores import callers
from penstock.stores.postgres.statement import NAMED, SQL, TEXTS

# The same statements for drivers that take %(name)s.
FORMATTED = {name: NAMED.sub(r"%(\1)s", text.replace("%", "%%")) for name, text in TEXTS.items()}
IDLE = 0


class PostgresDriverConnection(callers.DriverConnection):
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


KINDS = callers.DriverAdapters("asyncpg, psycopg, SQLAlchemy or Django", adapt_driver)
