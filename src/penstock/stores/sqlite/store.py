"""The SQLite store. Agents and claims read first and write only if there is work."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.model.copies import StoreDump
from penstock.model.message import Moment
from penstock.model.store_types import (
    Answer,
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Extension,
    Feed,
    Lease,
    Lock,
    Move,
    Promoted,
    Pruned,
    Published,
    Retention,
    Sweep,
)
from penstock.store import Check
from penstock.stores.notifier import wait_until_heard
from penstock.stores.sql import settle as settling
from penstock.stores.sql import upkeep
from penstock.stores.sql.store import SqlStore
from penstock.stores.sqlite import (
    caller_transaction,
    copying,
    driver_adapters,
    feed,
    health,
    publish,
    settle,
)
from penstock.stores.sqlite import claim as claiming
from penstock.stores.sqlite.database import SqliteDatabase
from penstock.stores.sqlite.driver_adapters import ADAPTERS
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import FIRST, LAST


class SqliteStore(SqliteDatabase, SqlStore):
    # The queues of the last claim that was filled.
    plenty: tuple[int, ...] = ()

    # Producers and consumers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if self.files is not None:
            self.files.check_room()
        return await self.write(publish.publish, entries, atomic)

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        caller = ADAPTERS.adapt(connection)
        return self.tell_committed(*caller.run(self.publishing(entries)))

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        caller = await ADAPTERS.adapt_async(connection)
        return self.tell_committed(*await caller.arun(self.publishing(entries)))

    def complete_on(self, connection: object, item: Completion) -> None:
        ADAPTERS.adapt(connection).run(self.completing(item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await (await ADAPTERS.adapt_async(connection)).arun(self.completing(item))

    def publishing(
        self, entries: Sequence[Entry]
    ) -> Callable[[sqlite3.Connection], tuple[list[Published], bool]]:
        self.refuse_replaced()
        now = self.clock()
        return lambda db: caller_transaction.publish(db, self.path, now, entries)

    def completing(self, item: Completion) -> Callable[[sqlite3.Connection], None]:
        self.refuse_replaced()
        now = self.clock()
        return lambda db: caller_transaction.complete(db, self.path, now, item)

    def tell_committed(self, outcomes: list[Published], committed: bool) -> list[Published]:
        if committed:
            self.notifier.ring()
        return outcomes

    def in_transaction(self, connection: object) -> bool:
        return driver_adapters.in_transaction(connection)

    async def claim(self, claim: Claim) -> Claimed:
        # After a full claim of the same queues there is usually more, so skip the check.
        if claim.queue_ids != self.plenty and not self.look_now(any_ready, claim.queue_ids):
            return claiming.NO_CLAIM
        claimed = await self.write(claiming.claim, claim)
        self.plenty = claim.queue_ids if len(claimed.messages) == claim.limit else ()
        return claimed

    async def claim_dead(self, claim: Claim) -> Claimed:
        if not self.look_now(any_dead, claim.queue_ids):
            return claiming.NO_CLAIM
        return await self.write(claiming.claim_dead, claim)

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        return await self.write_in(FIRST, settle.complete, items)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        return await self.write_in(FIRST, settle.extend, items)

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        return self.look_now(settling.leases, locks)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        reclaims = any(move.expired_by is not None for move in moves)
        return await self.write_in(LAST if reclaims else FIRST, settling.settle, moves)

    @property
    def wakes(self) -> int:
        return self.notifier.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.refuse_closed()
        heard = self.notifier.wait(queue_ids)
        # Check after starting to listen, so that nothing in between is missed.
        missed = (
            self.look_now(any_ready, queue_ids) if since is None else since != self.notifier.wakes
        )
        if missed:
            heard.cancel()
            return
        if self.commit_watcher is not None:
            self.commit_watcher.begin()
        await wait_until_heard(heard, min(timeout, self.notifier.longest_wait))

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        return self.look_now(any_of_types, queue_id, types)

    # Agents.

    async def now(self) -> Moment:
        return self.clock()

    async def expired_leases(self, limit: int) -> Sweep:
        return self.look_now(settling.expired_leases, limit)

    async def promote(self, limit: int) -> Promoted:
        next_at, now = self.look_now(upkeep.next_due), self.clock()
        if next_at is None or next_at > now:
            return Promoted(0, now, next_at)
        return await self.write(upkeep.promote, limit)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.read(upkeep.find_prunable, retention)
        return await self.write(prune, retention) if ids else pruned

    async def index_types(self) -> None:
        await self.write(index_types)

    async def examine(self) -> list[Check]:
        return await self.read(health.examine, self.files, self.capabilities.durability)

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        return await self.read(feed.feed, cursor, limit)

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        if self.files is not None:
            self.files.check_room()
        return await self.write(copying.restore, page, queue_ids)


async def prune(tx: SqliteTransaction, retention: Retention) -> Pruned:
    pruned = await upkeep.prune(tx, retention)
    tx.db.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    return pruned


async def index_types(tx: SqliteTransaction) -> None:
    await tx.run("index_types")


async def any_ready(tx: SqliteTransaction, queue_ids: Collection[int]) -> bool:
    for queue_id in queue_ids:
        if await tx.one("peek", queue_id=queue_id) is not None:
            return True
    return False


async def any_of_types(tx: SqliteTransaction, queue_id: int, types: Sequence[str]) -> bool:
    if not types:
        return await any_ready(tx, [queue_id])
    for type_ in types:
        if await tx.one("peek_type", queue_id=queue_id, type=type_) is not None:
            return True
    return False


async def any_dead(tx: SqliteTransaction, queue_ids: Collection[int]) -> bool:
    for queue_id in queue_ids:
        if await tx.one("pick_dead", queue_id=queue_id, limit=1) is not None:
            return True
    return False
