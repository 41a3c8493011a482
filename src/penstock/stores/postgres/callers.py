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


class Caller(callers.Caller):
    @abstractmethod
    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]: ...


class AsyncpgCaller(Caller):
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


class PsycopgCaller(Caller):
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


class AsyncPsycopgCaller(PsycopgCaller):
    waits = True

    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        async with self.connection.cursor(row_factory=self.rows) as cursor:
            await cursor.execute(FORMATTED[statement], values)
            rows: list[Any] = await cursor.fetchall() if cursor.description else []
            return rows

    async def say(self, text: str) -> None:
        await self.connection.execute(text)


def of_driver(connection: Any) -> Caller | None:
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return AsyncpgCaller(connection)
    return of_psycopg(connection) or of_django(connection)


def of_psycopg(connection: Any) -> Caller | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None:
        return None
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgCaller(connection, psycopg)
    return (
        PsycopgCaller(connection, psycopg) if isinstance(connection, psycopg.Connection) else None
    )


def of_django(connection: Any) -> Caller | None:
    if "django.db" not in sys.modules or not hasattr(connection, "in_atomic_block"):
        return None
    connection.ensure_connection()
    caller = of_psycopg(connection.connection)
    if caller is not None and connection.in_atomic_block:
        caller.on_commit = connection.on_commit
    return caller


KINDS = callers.Kinds("asyncpg, psycopg, SQLAlchemy or Django", of_driver)
