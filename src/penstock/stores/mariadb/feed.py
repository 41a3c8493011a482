"""Reads messages and history for the export, up to the last final number.

Numbers are assigned before the commit and commit in any order. So each writer locks the newest
generation until its commit. If no generation is locked, everything committed is final; otherwise
everything committed before the oldest locked generation began.
"""

from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from penstock.errors import StoreBusy
from penstock.model.store_types import Cursor, Feed, Pruned, Retention
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql import export, upkeep
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.rows import make_feed_message, make_history_row

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
