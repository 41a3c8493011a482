"""The MariaDB store. Hot verbs are one packet each."""

from collections.abc import Mapping, Sequence

from penstock.model.copies import StoreDump
from penstock.model.store_types import Cursor, Entry, Feed, Pruned, Published, Retention
from penstock.store import Check
from penstock.stores.mariadb import caller_transaction, copying, feed, health, publish, schema
from penstock.stores.mariadb import upkeep as sets
from penstock.stores.mariadb.caller_transaction import KINDS
from penstock.stores.mariadb.consume import MariaConsume
from penstock.stores.mariadb.database import Waiting
from penstock.stores.mariadb.errors import ERRORS, translate_error
from penstock.stores.sql import upkeep
from penstock.stores.sql.caller_transaction import Inside
from penstock.stores.sql.locking import publish_together
from penstock.stores.sql.server_store import ServerStore


class MariaStore(MariaConsume, ServerStore[Waiting]):
    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        if sum(len(entry.body) for entry in entries) > publish.ONE_PACKET:
            return await self.write(publish_together, entries)
        queues = {entry.queue_id for entry in entries}
        outcomes = await self.act(
            *publish.make_statements(entries), *self.notify_statements(queues)
        )
        self.waiters.tell(queues)
        return publish.make_published(outcomes[0].first, len(entries))

    def inside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(
            KINDS.adapt(connection), self.address, self.seal
        )

    async def ainside(self, connection: object) -> Inside:
        caller = await KINDS.adapt_async(connection)
        return caller_transaction.enter_transaction(caller, self.address, self.seal)

    async def promote_set(self, limit: int) -> list[int]:
        return await self.write(sets.promote, limit)

    async def expire(self, limit: int) -> int:
        """Expires as sets; messages with keys to free one by one."""
        if not await self.look(upkeep.any_expired):
            return 0
        ended = await self.write(sets.expire, limit)
        return ended + (await self.write(upkeep.expire, limit - ended) if ended < limit else 0)

    async def prune(self, retention: Retention) -> Pruned:
        final = await feed.find_final(self)
        ids, pruned = await self.read(feed.find_prunable, retention, final)
        return await self.write(feed.prune, retention, final) if ids else pruned

    async def index_types(self) -> None:
        session = await self.address.connect()
        try:
            if not await schema.exists(session):
                await schema.build(session)
        except ERRORS as error:
            raise translate_error(error, self.where) from error
        finally:
            session.terminate()

    async def examine(self) -> list[Check]:
        checks = await self.read(health.examine, self.address)
        return [*checks, await self.waiters.examine()]

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        final = (
            await feed.find_final(self)
            if known is None
            else feed.Final(known.message, known.history)
        )
        return await self.read(feed.feed, cursor, limit, final)

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        return await self.write(copying.restore, page, queue_ids)
