"""Adapts callers' driver connections to one interface."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import InvalidInput


class CallerConnection:
    """A caller's connection. `waits`: its calls are awaited."""

    waits = False
    # Registers a callback for after the commit; None if the driver has no such hook.
    on_commit: Callable[[Callable[[], None]], object] | None = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection


class DriverConnection(CallerConnection, ABC):
    """A caller's connection to a server.

    `alone`: it is in autocommit mode, outside a transaction.
    """

    alone = False
    errors: tuple[type[BaseException], ...] = ()

    @abstractmethod
    async def say(self, text: str) -> None:
        """Runs a statement without parameters or rows."""


C = TypeVar("C", bound=CallerConnection)


class DriverAdapters(Generic[C]):
    """Adapts connections of an engine's drivers, plain or inside SQLAlchemy."""

    def __init__(self, names: str, of_driver: Callable[[Any], C | None]) -> None:
        self.names = names
        self.of_driver = of_driver

    def adapt(self, connection: Any) -> C:
        """Adapts a connection for a synchronous caller."""
        caller = self.adapt_known(connection)
        if caller.waits:
            raise InvalidInput("the connection is asynchronous: use aenqueue")
        return caller

    async def adapt_async(self, connection: Any) -> C:
        asyncio = sys.modules.get("sqlalchemy.ext.asyncio")
        if asyncio is not None and isinstance(connection, asyncio.AsyncSession):
            caller = await self.adapt_async(await connection.connection())
            return watch_commit(caller, connection.sync_session)
        if asyncio is not None and isinstance(connection, asyncio.AsyncConnection):
            # Makes SQLAlchemy begin its transaction; otherwise its rollback would not cover ours.
            await connection.exec_driver_sql("SELECT 1")
            raw = await connection.get_raw_connection()
            return self.adapt_known(raw.driver_connection)
        return self.adapt_known(connection)

    def adapt_known(self, connection: Any) -> C:
        caller = self.of_driver(connection) or self.adapt_sqlalchemy(connection)
        if caller is None:
            raise InvalidInput(f"{type(connection).__name__} is not a connection of {self.names}")
        return caller

    def adapt_sqlalchemy(self, connection: Any) -> C | None:
        orm, sqlalchemy = sys.modules.get("sqlalchemy.orm"), sys.modules.get("sqlalchemy")
        if orm is not None and isinstance(connection, orm.scoped_session):
            connection = connection()
        if orm is not None and isinstance(connection, orm.Session):
            return watch_commit(self.adapt_known(connection.connection()), connection)
        if sqlalchemy is not None and isinstance(connection, sqlalchemy.Connection):
            connection.exec_driver_sql("SELECT 1")
            return self.of_driver(connection.connection.driver_connection)
        return None


def watch_commit(caller: C, session: Any) -> C:
    """Uses the session's after_commit event as the commit hook."""
    event = sys.modules["sqlalchemy"].event
    caller.on_commit = lambda call: event.listen(
        session, "after_commit", lambda _: call(), once=True
    )
    return caller
