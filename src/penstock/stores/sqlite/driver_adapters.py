"""Finds the sqlite3 connection inside those of SQLAlchemy, Django and aiosqlite."""

import sqlite3
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.stores.driver_adapters import CallerConnection, DriverAdapters

T = TypeVar("T")


class Sqlite3Connection(CallerConnection):
    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    async def arun(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)


class AiosqliteConnection(Sqlite3Connection):
    """Its sqlite3 connection may be used on its own thread only."""

    waits = True

    async def arun(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # aiosqlite has no public method that runs a function on its thread.
        result: T = await self.connection._execute(work, self.connection._conn)
        return result


def adapt_driver(connection: Any) -> Sqlite3Connection | None:
    if isinstance(connection, sqlite3.Connection):
        return Sqlite3Connection(connection)
    if is_aiosqlite(connection):
        return AiosqliteConnection(connection)
    if is_django(connection):
        connection.ensure_connection()
        return adapt_driver(connection.connection)
    return None


def is_aiosqlite(connection: object) -> bool:
    aiosqlite = sys.modules.get("aiosqlite")
    return aiosqlite is not None and isinstance(connection, aiosqlite.Connection)


def is_django(connection: object) -> bool:
    return "django.db" in sys.modules and hasattr(connection, "in_atomic_block")


ADAPTERS = DriverAdapters("sqlite3, aiosqlite, SQLAlchemy or Django", adapt_driver)


def in_transaction(connection: Any) -> bool:
    """True inside a transaction; False for a closed connection. Begins none."""
    try:
        raw = find_driver_connection(connection)
        return bool(raw.in_transaction) if raw is not None else False
    except (sqlite3.ProgrammingError, ValueError):
        # sqlite3 and aiosqlite raise these for a closed connection.
        return False


def find_driver_connection(connection: Any) -> Any:
    """Returns the connection of sqlite3 or aiosqlite; None if there is none yet."""
    if isinstance(connection, sqlite3.Connection) or is_aiosqlite(connection):
        return connection
    if is_django(connection):
        return connection.connection
    sqlalchemy, orm = sys.modules.get("sqlalchemy"), sys.modules.get("sqlalchemy.orm")
    if sqlalchemy is None:
        return None
    # The sync side of an AsyncSession or AsyncConnection.
    connection = getattr(
        connection, "sync_session", getattr(connection, "sync_connection", connection)
    )
    if orm is not None and isinstance(connection, orm.scoped_session):
        connection = connection()
    if orm is not None and isinstance(connection, orm.Session):
        connection = connection.connection() if connection.in_transaction() else None
    if isinstance(connection, sqlalchemy.Connection) and not connection.closed:
        return connection.connection.driver_connection
    return None
