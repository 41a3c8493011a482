"""One transaction on one asyncpg connection."""

from typing import Any

import asyncpg

from penstock.message import Moment
from penstock.stores.postgres.statement import SQL
from penstock.stores.sql import transaction
from penstock.stores.sql.transaction import Lockable

# Every call has an end, whatever became of the server.
DEADLINE = 5.0


class Transaction(transaction.Transaction):
    __slots__ = ("connection",)

    def __init__(self, connection: asyncpg.Connection, now: Moment) -> None:
        super().__init__(now)
        self.connection = connection

    async def run(self, statement: str, /, **values: Any) -> int:
        text, names = SQL[statement]
        status = await self.connection.execute(
            text, *[values[name] for name in names], timeout=DEADLINE
        )
        return int(status.rpartition(" ")[2])

    async def one(self, statement: str, /, **values: Any) -> Any:
        text, names = SQL[statement]
        return await self.connection.fetchrow(
            text, *[values[name] for name in names], timeout=DEADLINE
        )

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        text, names = SQL[statement]
        return await self.connection.fetch(
            text, *[values[name] for name in names], timeout=DEADLINE
        )

    async def lock(self, *what: Lockable) -> None:
        for each in what:
            await self.one("lock", what=lock_name(each))


def lock_name(what: Lockable) -> str:
    kind, queue_id, name = what
    return f"penstock {kind} {queue_id} {name}"
