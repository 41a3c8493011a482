"""Callers' connections to MariaDB, as one."""

import sys
from abc import abstractmethod
from typing import Any

import asyncmy
from asyncmy.errors import MySQLError

from penstock.stores import callers

IN_TRANSACTION = 1


class MariaDriverConnection(callers.DriverConnection):
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


KINDS = callers.DriverAdapters("asyncmy, PyMySQL or SQLAlchemy", adapt_driver)
