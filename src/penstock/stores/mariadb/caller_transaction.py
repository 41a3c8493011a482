"""Adapts callers' MariaDB connections and runs our statements in their transactions."""

import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncmy
from asyncmy.errors import MySQLError

from penstock.errors import InvalidInput, StoreBusy, StoreError
from penstock.model.store_types import Entry, Published
from penstock.stores import driver_adapters
from penstock.stores.mariadb.connection import MariaDsn
from penstock.stores.mariadb.errors import CONFLICT_ERRORS
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.transaction import RowLockGuard
from penstock.stores.sql import caller_transaction, publish
from penstock.stores.sql.caller_transaction import ELSEWHERE

IN_TRANSACTION = 1


class MariaDriverConnection(driver_adapters.DriverConnection):
    @abstractmethod
    async def ask(self, text: str) -> list[Any]: ...

    async def say(self, text: str) -> None:
        await self.ask(text)


class AsyncmyConnection(MariaDriverConnection):
    waits = True
    errors = (MySQLError,)

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.alone = connection.get_autocommit() and not connection.get_transaction_status()

    async def ask(self, text: str) -> list[Any]:
        async with self.connection.cursor(asyncmy.cursors.Cursor) as cursor:
            await cursor.execute(text)
            return list(await cursor.fetchall()) if cursor.description else []


class PymysqlConnection(MariaDriverConnection):
    def __init__(self, connection: Any, pymysql: Any) -> None:
        super().__init__(connection)
        self.errors = (pymysql.MySQLError,)
        self.cursor = pymysql.cursors.Cursor
        open_now = connection.server_status & IN_TRANSACTION
        self.alone = connection.get_autocommit() and not open_now

    async def ask(self, text: str) -> list[Any]:
        with self.connection.cursor(self.cursor) as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []


def adapt_driver(connection: Any) -> MariaDriverConnection | None:
    if isinstance(connection, asyncmy.Connection):
        return AsyncmyConnection(connection)
    pymysql = sys.modules.get("pymysql")
    if pymysql is not None and isinstance(connection, pymysql.connections.Connection):
        return PymysqlConnection(connection, pymysql)
    return None


KINDS = driver_adapters.DriverAdapters("asyncmy, PyMySQL or SQLAlchemy", adapt_driver)


# No such table, no database chosen.
ABSENT = (1146, 1046)
# The caller's snapshot may be old, so these use locking reads to see committed rows.
CURRENT = frozenset({"dedup_seen", "head", "head_of", "first_in_line", "document"})


class MariaCallerTransaction(
    caller_transaction.CallerTransaction[MariaDriverConnection], RowLockGuard
):
    __slots__ = ()

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        text = fill_statement(statement, **values)
        if statement not in CURRENT:
            return await self.caller.ask(text)
        if statement == "dedup_seen":
            # InnoDB locks a missing row only with its gap, so insert a placeholder first.
            await self.caller.ask(fill_statement("dedup_place", **values))
        return await self.caller.ask(f"{text} FOR UPDATE")

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        return await publish.publish_each(self, entries)


@asynccontextmanager
async def enter_transaction(
    caller: MariaDriverConnection, address: MariaDsn, seal: str
) -> AsyncIterator[MariaCallerTransaction]:
    try:
        async with caller_transaction.savepoint(caller):
            yield await check_and_enter(caller, address, seal)
    except caller.errors as error:
        number = error.args[0] if error.args else None
        if number in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        if number in CONFLICT_ERRORS:
            raise StoreBusy(
                f"a concurrent transaction wrote the same key; roll back and try again: {error}"
            ) from error
        raise StoreError(f"a statement failed on your connection: {error}") from error


async def check_and_enter(
    caller: MariaDriverConnection, address: MariaDsn, seal: str
) -> MariaCallerTransaction:
    found = await caller.ask(fill_statement("fact", name="secret"))
    if found != [(seal,)]:
        raise InvalidInput(ELSEWHERE)
    await caller.ask(fill_statement("enter"))
    ((now,),) = await caller.ask(f"SELECT {address.moment}")
    return MariaCallerTransaction(caller, now)
