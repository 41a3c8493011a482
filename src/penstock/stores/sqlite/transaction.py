"""One transaction on one sqlite3 connection; it never suspends."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.model.message import Moment
from penstock.stores.sql.transaction import Lockable, SqlTransaction
from penstock.stores.statements import load

SQL = load("penstock.stores.sqlite")
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class SqliteTransaction(SqlTransaction):
    __slots__ = ("db",)

    def __init__(self, db: sqlite3.Connection, now: Moment) -> None:
        super().__init__(now)
        self.db = db

    def execute(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        return self.db.execute(SQL[name], parameters)

    async def run(self, statement: str, /, **values: Any) -> int:
        return self.db.execute(SQL[statement], values).rowcount

    async def one(self, statement: str, /, **values: Any) -> Any:
        """Fetches all rows, because RETURNING takes effect only then."""
        rows = self.db.execute(SQL[statement], values).fetchall()
        return rows[0] if rows else None

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        return self.db.execute(SQL[statement], values).fetchall()

    async def run_many(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        self.db.executemany(SQL[statement], rows)

    async def lock(self, *what: Lockable) -> None:
        """Does nothing: SQLite has one writer at a time."""

    def encode_ids(self, numbers: Sequence[int]) -> str:
        return msgspec.json.encode(numbers).decode()
