"""What is read in the order it was written: by the export, which never sees a gap, by retention."""

from operator import itemgetter
from typing import Any

from penstock.message import HistoryRow
from penstock.stores.postgres.transaction import Transaction
from penstock.stores.sql import export, upkeep
from penstock.stores.sql.rows import history_of, message_of
from penstock.ticket import Cursor, Feed, Pruned, Retention

# By transaction, then as they were numbered.
in_order = itemgetter(-1, 0)
# For how many rows one transaction more is looked at, at first: all that is looked at is sorted.
# Producers that publish in batches write about as many.
DENSE = 1_000
# How much further the next look goes, at most.
LEAP = 16


async def feed(tx: Transaction, cursor: Cursor, limit: int) -> Feed:
    """A page may be longer than `limit`, by the rest of its last transaction."""
    await by_stretches(tx)
    epoch = await export.epoch(tx, cursor)
    (horizon,) = await tx.one("horizon")
    messages, message = await page(tx, "feed_messages", cursor.message, horizon, limit)
    history, told = await page(tx, "feed_history", cursor.history, horizon, limit)
    return Feed(
        [message_of(row[:-1]) for row in messages],
        [history_of(row[:-1]) for row in history],
        Cursor(epoch, message, told),
    )


async def page(
    tx: Transaction, statement: str, after: int, horizon: int, limit: int
) -> tuple[list[Any], int]:
    """The next rows, and the last transaction they are of."""
    look = limit // DENSE + 1
    while True:
        before = min(horizon, after + look + 1)
        rows = await tx.all(statement, after=after, before=before, limit=limit)
        if len(rows) >= limit:
            return sorted(rows, key=in_order), rows[-1][-1]
        if before >= horizon:
            return sorted(rows, key=in_order), max(after, rows[-1][-1] if rows else 0)
        look *= min(limit // len(rows) + 1, LEAP) if rows else LEAP


async def recent(tx: Transaction, after: int, limit: int) -> list[HistoryRow]:
    await by_stretches(tx)
    return await export.recent(tx, after, limit)


async def prunable(tx: Transaction, retention: Retention) -> tuple[list[int], Pruned]:
    await by_stretches(tx)
    return await upkeep.prunable(tx, retention)


async def prune(tx: Transaction, retention: Retention) -> Pruned:
    await by_stretches(tx)
    return await upkeep.prune(tx, retention)


async def by_stretches(tx: Transaction) -> None:
    """The indexes of what is read in the order it was written have no other way to be read."""
    await tx.connection.execute("SET LOCAL enable_bitmapscan = on")
