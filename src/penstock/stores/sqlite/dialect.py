"""SQLite's own statements. Claims and agents read first and write only if there is work."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidInput
from penstock.model.heads import FeedDigest
from penstock.model.store_types import Cursor, Feed
from penstock.stores.sql import export, upkeep
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.export import make_first_runs, make_head_feed
from penstock.stores.sql.records import make_feed_message, make_history_row
from penstock.stores.sqlite import claim as claiming
from penstock.stores.sqlite.transaction import SQL
from penstock.stores.sqlite.verbs import find_any_ready

decode_numbers = msgspec.json.Decoder(list[int]).decode


if TYPE_CHECKING:
    from penstock.model.copies import StoreCounters, StoreDump
    from penstock.model.heads import DigestBounds, HeadFeed
    from penstock.model.message import HistoryRow, Moment
    from penstock.model.store_types import Claim, Claimed, Firing, Pruned, Retention
    from penstock.store import Check
    from penstock.stores.sql.copying import Rows
    from penstock.stores.sqlite.database import SqliteDatabase
    from penstock.stores.sqlite.transaction import SqliteTransaction


class SqliteDialect:
    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        # The queues of the last claim that was filled.
        self.plenty: tuple[int, ...] = ()

    async def claim(self, claim: Claim) -> Claimed:
        # After a full claim of the same queues there is usually more, so skip the check.
        if claim.queue_ids != self.plenty and not self.database.look_now(
            find_any_ready, claim.queue_ids
        ):
            return claiming.NO_CLAIM
        claimed = await self.database.write(claiming.claim, claim)
        self.plenty = claim.queue_ids if len(claimed.messages) == claim.limit else ()
        return claimed

    async def claim_dead(self, claim: Claim) -> Claimed:
        if not self.database.look_now(find_any_dead, claim.queue_ids):
            return claiming.NO_CLAIM
        return await self.database.write(claiming.claim_dead, claim)

    # Agents.

    async def now(self) -> Moment:
        return self.database.clock()

    async def expire(self, limit: int) -> int:
        if not self.database.look_now(upkeep.any_expired):
            return 0
        return await self.database.write(upkeep.expire, limit)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.database.write(upkeep.fire, firings)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.database.read(upkeep.find_prunable, retention)
        return await self.database.write(with_audit(prune_and_vacuum), retention) if ids else pruned

    # Operators and export.

    async def index_types(self) -> None:
        await self.database.write(build_type_index)

    async def examine(self) -> list[Check]:
        from penstock.stores.sqlite import health

        database = self.database
        durability = database.capabilities.durability
        return await database.read(health.examine, database.files, durability)

    async def backup(self, path: str) -> None:
        """Copies the database on a reader while writers continue."""
        await self.database.read(copy_to, path)

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        return await self.database.read(read_feed, cursor, limit)

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed:
        return await self.database.read(read_heads, cursor, limit)

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest:
        return await self.database.read(read_digest, cursor, limit, bounds)

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        return await self.database.read(export.past, before, after, limit)

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]:
        return await self.database.read(
            export.recent, max(after, beyond.history if beyond else 0), limit
        )

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        if self.database.files is not None:
            self.database.files.check_room(sum(len(life.message.body) for life in page.lives))
        return await self.database.write(restore, page, queue_ids)


async def prune_and_vacuum(tx: SqliteTransaction, retention: Retention) -> Pruned:
    pruned = await upkeep.prune(tx, retention)
    tx.db.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    return pruned


async def build_type_index(tx: SqliteTransaction) -> None:
    await tx.run("index_types")


async def find_any_dead(tx: SqliteTransaction, queue_ids: Collection[int]) -> bool:
    for queue_id in queue_ids:
        if await tx.one("pick_dead", queue_id=queue_id, limit=1) is not None:
            return True
    return False


async def read_feed(tx: SqliteTransaction, cursor: Cursor, limit: int) -> Feed:
    """Returns all rows: with a single writer, ids and positions are in commit order."""
    epoch = await export.epoch(tx, cursor)
    rows = await tx.all("feed_messages", after=cursor.message, limit=limit)
    messages = [make_feed_message(row) for row in rows]
    history = await export.recent(tx, cursor.history, limit)
    return Feed(
        messages,
        history,
        Cursor(
            epoch,
            messages[-1].id if messages else cursor.message,
            history[-1].position if history else cursor.history,
        ),
    )


async def read_heads(tx: SqliteTransaction, cursor: Cursor, limit: int) -> HeadFeed:
    epoch = await export.epoch(tx, cursor)
    messages = await tx.all("heads_messages", after=cursor.message, limit=limit)
    history = await export.recent(tx, cursor.history, limit)
    reached = Cursor(
        epoch,
        messages[-1][0] if messages else cursor.message,
        history[-1].position if history else cursor.history,
    )
    return await make_head_feed(tx, messages, history, reached)


async def read_digest(
    tx: SqliteTransaction, cursor: Cursor, limit: int, bounds: DigestBounds
) -> FeedDigest:
    epoch = await export.epoch(tx, cursor)
    messages = await tx.all("digest_messages", after=cursor.message, limit=limit)
    rows = await tx.all(
        "digest_history",
        after=cursor.history,
        limit=limit,
        run=bounds.run,
        size=bounds.size,
        whole=tx.encode_ids(bounds.whole),
    )
    position = max((row[7] for row in rows), default=0)
    history: list[HistoryRow] = []
    for row in rows:
        if not row[0]:
            history = [make_history_row(each) for each in await tx.all("history_of", ids=row[10])]
    last = messages[-1][0] if messages else cursor.message
    reached = Cursor(epoch, last, max(position, cursor.history))
    groups = [
        make_first_runs(row, decode_numbers(row[8]), decode_numbers(row[9]))
        for row in rows
        if row[0]
    ]
    return FeedDigest(messages, groups, await make_head_feed(tx, (), history, reached), position)


async def copy_to(tx: SqliteTransaction, path: str) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise InvalidInput(f"cannot back up to {path!r}: {error.strerror}") from None
    target = sqlite3.connect(path)
    try:
        tx.db.backup(target)
    finally:
        target.close()


async def restore(tx: SqliteTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    from penstock.stores.sql import copying

    await raise_counters(tx, page.counters)
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: SqliteTransaction, table: str, rows: Rows) -> None:
    tx.db.executemany(SQL[f"restore_{table}"], rows)


async def raise_counters(tx: SqliteTransaction, counters: StoreCounters) -> None:
    await tx.run("begin_sequences")
    await tx.run("restore_sequence", message=counters.message)
    await tx.run("restore_counters", fence=counters.fence, pruned=counters.pruned)
