"""Callers' connections, of every kind we know, as one."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import asyncmy
from asyncmy.errors import MySQLError

from penstock.errors import InvalidInput

KNOWN = "asyncmy, PyMySQL or SQLAlchemy"
IN_TRANSACTION = 1


class Caller(ABC):
    """`alone`: it is in no transaction, and would commit every statement by itself."""

    alone = False
    errors: tuple[type[BaseException], ...] = ()
    # Has something called after the commit; None if nobody tells us of it.
    on_commit: Callable[[Callable[[], None]], object] | None = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    async def ask(self, text: str) -> list[Any]: ...


class AsyncmyCaller(Caller):
    errors = (MySQLError,)

    async def ask(self, text: str) -> list[Any]:
        async with self.connection.cursor(asyncmy.cursors.Cursor) as cursor:
            await cursor.execute(text)
            return list(await cursor.fetchall()) if cursor.description else []


class PymysqlCaller(Caller):
    def __init__(self, connection: Any, pymysql: Any) -> None:
        super().__init__(connection)
        self.errors = (pymysql.MySQLError,)
        self.cursor = pymysql.cursors.Cursor

    async def ask(self, text: str) -> list[Any]:
        with self.connection.cursor(self.cursor) as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []


def caller_of(connection: Any) -> Caller:
    """For a caller that does not wait."""
    caller = known(connection)
    if caller is None:
        raise InvalidInput(f"{type(connection).__name__} is not a connection of {KNOWN}")
    if isinstance(caller, AsyncmyCaller):
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
    if isinstance(connection, asyncmy.Connection):
        caller = AsyncmyCaller(connection)
        caller.alone = connection.get_autocommit() and not connection.get_transaction_status()
        return caller
    return of_pymysql(connection) or of_sqlalchemy(connection)


def of_pymysql(connection: Any) -> Caller | None:
    pymysql = sys.modules.get("pymysql")
    if pymysql is None or not isinstance(connection, pymysql.connections.Connection):
        return None
    caller = PymysqlCaller(connection, pymysql)
    open_now = connection.server_status & IN_TRANSACTION
    caller.alone = connection.get_autocommit() and not open_now
    return caller


def of_sqlalchemy(connection: Any) -> Caller | None:
    orm, sqlalchemy = sys.modules.get("sqlalchemy.orm"), sys.modules.get("sqlalchemy")
    if orm is not None and isinstance(connection, orm.scoped_session):
        connection = connection()
    if orm is not None and isinstance(connection, orm.Session):
        caller = of_sqlalchemy(connection.connection())
        return None if caller is None else heard(caller, connection)
    if sqlalchemy is not None and isinstance(connection, sqlalchemy.Connection):
        connection.exec_driver_sql("SELECT 1")
        return of_pymysql(connection.connection.driver_connection)
    return None


def heard(caller: Caller, session: Any) -> Caller:
    """A session tells when it has committed."""
    event = sys.modules["sqlalchemy"].event
    caller.on_commit = lambda call: event.listen(
        session, "after_commit", lambda _: call(), once=True
    )
    return caller
