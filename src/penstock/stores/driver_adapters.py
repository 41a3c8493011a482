"""Callers' connections, of every kind that an engine knows, as one."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import InvalidInput


class DriverConnection(ABC):
    """`alone`: it is in no transaction, and would commit every statement by itself.

    `waits`: its calls are waited for.
    """

    alone = False
    waits = False
    errors: tuple[type[BaseException], ...] = ()
    # Has something called after the commit; None if nobody tells us of it.
    on_commit: Callable[[Callable[[], None]], object] | None = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    async def say(self, text: str) -> None:
        """Plain words, without an answer."""


C = TypeVar("C", bound=DriverConnection)


class DriverAdapters(Generic[C]):
    """Those of some drivers, and SQLAlchemy with any of them."""

    def __init__(self, names: str, of_driver: Callable[[Any], C | None]) -> None:
        self.names = names
        self.of_driver = of_driver

    def adapt(self, connection: Any) -> C:
        """For a caller that does not wait."""
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
            # What it has not begun would not be rolled back either.
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
    """A session tells when it has committed."""
    event = sys.modules["sqlalchemy"].event
    caller.on_commit = lambda call: event.listen(
        session, "after_commit", lambda _: call(), once=True
    )
    return caller
