"""One transaction on one asyncpg connection."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from penstock.model.message import Moment
from penstock.model.store_types import Completion, Entry, Published
from penstock.stores.postgres import publish, settle
from penstock.stores.postgres.statement import SQL
from penstock.stores.sql.locking import LockingTransaction, StoreTransaction
from penstock.stores.sql.transaction import Lockable

# Time limit of every call, in seconds.
DEADLINE = 5.0


class Locks(LockingTransaction):
    """Locks keys with advisory locks."""

    __slots__ = ()

    async def lock(self, *what: Lockable) -> None:
        await self.all("lock", all=[make_lock_name(each) for each in what])

    async def try_lock(self, what: Sequence[Lockable]) -> list[bool]:
        rows = await self.all("try_lock", all=[make_lock_name(each) for each in what])
        return [free for (free,) in rows]

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        name, values = publish.make_call(entries)
        self.woken.update(entry.queue_id for entry in entries)
        return publish.make_published(await self.all(name, **values))


class PostgresTransaction(Locks, StoreTransaction):
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

    async def publish_keyed(self, entries: Sequence[Entry]) -> list[Published]:
        rows = await self.all("publish_keyed", **publish.keyed(entries))
        self.woken.update(queue_id for _, queue_id in rows if queue_id is not None)
        return publish.make_published(rows)

    async def keys_of_leases(self, items: Sequence[Completion]) -> list[Any]:
        return await self.all("keys_of_leases", **settle.locks_of(items))

    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        results = [item.result for item in items]
        rows = await self.all("complete_keyed", **settle.locks_of(items), results=results)
        self.woken.update(queue_id for _, _, queue_id in rows if queue_id is not None)
        return [(id, fence) for id, fence, _ in rows]

    async def save(self) -> None:
        await self.connection.execute("SAVEPOINT atomic")

    async def undo(self) -> None:
        await self.connection.execute("ROLLBACK TO atomic")


def make_lock_name(what: Lockable) -> str:
    kind, queue_id, name = what
    return f"penstock {kind} {queue_id} {name}"
