"""Callers' connections, of every kind we know, as one."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import asyncpg

from penstock.errors import InvalidInput
from penstock.stores.postgres.statement import NAMED, SQL, TEXTS

KNOWN = "asyncpg, psycopg, SQLAlchemy or Django"
# The same statements for drivers that take %(name)s.
FORMATTED = {name: NAMED.sub(r"%(\1)s", text.replace("%", "%%")) for name, text in TEXTS.items()}
IDLE = 0


class Caller(ABC):
    """`alone`: it is in no transaction, and would commit every statement by itself."""

    alone = False
    errors: tuple[type[BaseException], ...] = ()
    # Has something called after the commit; None if nobody tells us of it.
    on_commit: Callable[[Callable[[], None]], object] | None = None

    @abstractmethod
    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]: ...

    @abstractmethod
    async def say(self, text: str) -> None: ...


class AsyncpgCaller(Caller):
    errors = (asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.alone = not connection.is_in_transaction()

    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        text, given = SQL[statement].text, SQL[statement].values(values)
        rows: list[Any] = await self.connection.fetch(text, *given)
        return rows

    async def say(self, text: str) -> None:
        await self.connection.execute(text)


class PsycopgCaller(Caller):
    def __init__(self, connection: Any, psycopg: Any) -> None:
        self.connection = connection
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
    async def ask(self, statement: str, values: dict[str, Any]) -> list[Any]:
        async with self.connection.cursor(row_factory=self.rows) as cursor:
            await cursor.execute(FORMATTED[statement], values)
            rows: list[Any] = await cursor.fetchall() if cursor.description else []
            return rows

    async def say(self, text: str) -> None:
        await self.connection.execute(text)


def caller_of(connection: Any) -> Caller:
    """For a caller that does not wait."""
    caller = known(connection)
    if caller is None:
        raise InvalidInput(f"{type(connection).__name__} is not a connection of {KNOWN}")
    if isinstance(caller, AsyncpgCaller | AsyncPsycopgCaller):
        raise InvalidInput("the connection is asynchronous: use aenqueue")
    return caller


async def async_caller_of(connection: Any) -> Caller:
    asyncio = sys.modules.get("sqlalchemy.ext.asyncio")
    if asyncio is not None and isinstance(connection, asyncio.AsyncSession):
        caller = await async_caller_of(await connection.connection())
        return heard(caller, connection.sync_session)
    if asyncio is not None and isinstance(connection, asyncio.AsyncConnection):
        # What it has not begun would not be rolled back either.
        await connection.exec_driver_sql("SELECT 1")
        raw = await connection.get_raw_connection()
        return await async_caller_of(raw.driver_connection)
    caller_found = known(connection)
    if caller_found is None:
        raise InvalidInput(f"{type(connection).__name__} is not a connection of {KNOWN}")
    return caller_found


def known(connection: Any) -> Caller | None:
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return AsyncpgCaller(connection)
    return of_psycopg(connection) or of_sqlalchemy(connection) or of_django(connection)


def of_psycopg(connection: Any) -> Caller | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None:
        return None
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgCaller(connection, psycopg)
    return (
        PsycopgCaller(connection, psycopg) if isinstance(connection, psycopg.Connection) else None
    )


def of_sqlalchemy(connection: Any) -> Caller | None:
    orm, sqlalchemy = sys.modules.get("sqlalchemy.orm"), sys.modules.get("sqlalchemy")
    if orm is not None and isinstance(connection, orm.scoped_session):
        connection = connection()
    if orm is not None and isinstance(connection, orm.Session):
        caller = of_sqlalchemy(connection.connection())
        return None if caller is None else heard(caller, connection)
    if sqlalchemy is not None and isinstance(connection, sqlalchemy.Connection):
        connection.exec_driver_sql("SELECT 1")
        return of_psycopg(connection.connection.driver_connection)
    return None


def heard(caller: Caller, session: Any) -> Caller:
    """A session tells when it has committed."""
    event = sys.modules["sqlalchemy"].event
    caller.on_commit = lambda call: event.listen(
        session, "after_commit", lambda _: call(), once=True
    )
    return caller


def of_django(connection: Any) -> Caller | None:
    if "django.db" not in sys.modules or not hasattr(connection, "in_atomic_block"):
        return None
    connection.ensure_connection()
    caller = of_psycopg(connection.connection)
    if caller is not None and connection.in_atomic_block:
        caller.on_commit = connection.on_commit
    return caller
