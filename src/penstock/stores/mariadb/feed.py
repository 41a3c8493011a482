"""Reads messages and history for the export, up to the last final number; restores copies.

Numbers are assigned before the commit and commit in any order. So each writer locks the newest
generation until its commit. If no generation is locked, everything committed is final; otherwise
everything committed before the oldest locked generation began.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from penstock.errors import StoreBusy
from penstock.model.copies import StoreCounters, StoreDump
from penstock.model.heads import HeadFeed
from penstock.model.store_types import Cursor, Feed, Pruned, Retention
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.publish import ONE_PACKET
from penstock.stores.mariadb.statement import fill_statement, to_tuples
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql import copying, export, upkeep
from penstock.stores.sql.copying import COLUMNS, Rows
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.export import make_head_feed
from penstock.stores.sql.records import make_feed_message, make_history_row

MariaDatabase: TypeAlias = ServerDatabase[MariaConnection, MariaTransaction]


class Final(NamedTuple):
    message: int
    history: int


async def feed(tx: MariaTransaction, cursor: Cursor, limit: int, final: Final) -> Feed:
    epoch = await export.epoch(tx, cursor)
    messages = await tx.all("feed_messages", after=cursor.message, last=final.message, limit=limit)
    rows = await tx.all("feed_history", after=cursor.history, last=final.history, limit=limit)
    return Feed(
        [make_feed_message(row) for row in messages],
        [make_history_row(row) for row in rows],
        Cursor(
            epoch,
            messages[-1][0] if messages else cursor.message,
            rows[-1][0] if rows else cursor.history,
        ),
    )


async def read_heads(tx: MariaTransaction, cursor: Cursor, limit: int, final: Final) -> HeadFeed:
    epoch = await export.epoch(tx, cursor)
    messages = await tx.all("heads_messages", after=cursor.message, last=final.message, limit=limit)
    rows = await tx.all("feed_history", after=cursor.history, last=final.history, limit=limit)
    reached = Cursor(
        epoch,
        messages[-1][0] if messages else cursor.message,
        rows[-1][0] if rows else cursor.history,
    )
    return await make_head_feed(tx, messages, [make_history_row(row) for row in rows], reached)


async def find_prunable(
    tx: MariaTransaction, retention: Retention, final: Final
) -> tuple[list[int], Pruned]:
    await tx.add(f"SELECT {final.history} INTO @final")
    return await upkeep.find_prunable(tx, retention)


async def prune(tx: MariaTransaction, retention: Retention, final: Final) -> Pruned:
    await tx.add(f"SELECT {final.history} INTO @final")
    return await upkeep.prune(tx, retention)


async def find_final(database: MariaDatabase) -> Final:
    """Returns the last final numbers, and begins a new generation while writers are active."""
    (committed,) = await database.fetch("committed")
    generations = await database.fetch("generations")
    free = {number for (number,) in await database.fetch("free_generations")}
    held = [each for each in generations if each[0] not in free]
    youngest, *known = generations[-1]
    # Skipped if the row is locked; the next call does it.
    with suppress(StoreBusy):
        if not held and len(generations) > 1:
            await write_aside(database, "drop_generations", number=youngest)
        elif held and generations[0] not in held:
            await write_aside(database, "drop_generations", number=held[0][0])
        if held and tuple(committed) != tuple(known):
            message, history = committed
            await write_aside(
                database, "next_generation", number=youngest + 1, message=message, history=history
            )
    return Final(*(held[0][1:] if held else committed))


async def write_aside(database: MariaDatabase, statement: str, /, **values: Any) -> None:
    """Runs one statement in autocommit mode; raises StoreBusy if a row is locked."""
    text = fill_statement(statement, **values)
    try:
        async with database.pool.use() as session:
            await session.send(f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {text}")
    except database.driver.errors as error:
        raise database.driver.translate(error) from error


FINAL = COLUMNS["history"].index("final")


async def restore(tx: MariaTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    await raise_counters(tx, page.counters)
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: MariaTransaction, table: str, rows: Rows) -> None:
    if table == "history":
        # A message ends once: final is 1 or NULL.
        rows = [(*row[:FINAL], row[FINAL] or None, *row[FINAL + 1 :]) for row in rows]
    for chunk in split_into_packets(rows):
        await tx.send(fill_statement(f"restore_{table}", rows=to_tuples(chunk)))


def split_into_packets(rows: Rows) -> Iterator[Rows]:
    start = length = 0
    for end, row in enumerate(rows):
        size = sum(len(value) for value in row if isinstance(value, bytes | str))
        length += size
        if start < end and length > ONE_PACKET:
            yield rows[start:end]
            start, length = end, size
    yield rows[start:]


async def raise_counters(tx: MariaTransaction, counters: StoreCounters) -> None:
    found = await tx.one("copy_counters")
    if found[0] < counters.message:
        await tx.send(fill_statement("restore_sequence", message=counters.message))
    await tx.send(
        fill_statement("restore_counters", fence=max(counters.fence, 1), pruned=counters.pruned)
    )
