"""The PostgreSQL store. Hot verbs are one statement each."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.copies import StoreDump
from penstock.model.message import HistoryRow, Moment
from penstock.model.store_types import Cursor, Entry, Feed, Firing, Pruned, Published, Retention
from penstock.store import Check
from penstock.stores.postgres import (
    caller_transaction,
    copying,
    feed,
    firing,
    health,
    publish,
    type_index,
)
from penstock.stores.postgres.caller_transaction import KINDS
from penstock.stores.postgres.consume import PostgresConsume
from penstock.stores.postgres.notifier import PostgresNotifier
from penstock.stores.sql.caller_transaction import Inside
from penstock.stores.sql.publish import list_queue_ids
from penstock.stores.sql.server_store import ServerStore


class PostgresStore(PostgresConsume, ServerStore[PostgresNotifier]):
    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        name, values = publish.make_call(entries)
        outcomes = publish.make_published(await self.fetch(name, **values))
        self.waiters.tell(list_queue_ids(entries))
        return outcomes

    def inside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(KINDS.adapt(connection), self.seal)

    async def ainside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(await KINDS.adapt_async(connection), self.seal)

    # Agents.

    async def now(self) -> Moment:
        moment: Moment = (await self.fetch("moment"))[0][0]
        return moment

    async def promote_set(self, limit: int) -> list[int]:
        return [queue_id for (queue_id,) in await self.fetch("promote_many", limit=limit)]

    async def expire(self, limit: int) -> int:
        """Expires as sets; messages with keys to free one by one."""
        ended = 0
        for name in ("expire_ready", "expire_scheduled"):
            if ended < limit:
                ended += (await self.fetch(name, limit=limit - ended, queues=None))[0][0]
        return ended + (await super().expire(limit - ended) if ended < limit else 0)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.write(firing.fire, firings)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.read(feed.find_prunable, retention)
        return await self.write(feed.prune, retention) if ids else pruned

    # Operators and export.

    async def index_types(self) -> None:
        await type_index.build(self.address)

    async def examine(self) -> list[Check]:
        return await self.read(health.examine, self.address)

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        return await self.read(feed.feed, cursor, limit)

    async def columns(
        self, table: str, after: int, last: int, limit: int
    ) -> dict[str, list[Any]] | None:
        return await self.read(feed.read_columns, table, after, last, limit)

    async def recent(self, after: int, limit: int) -> list[HistoryRow]:
        return await self.read(feed.recent, after, limit)

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        return await self.write(copying.restore, page, queue_ids)
