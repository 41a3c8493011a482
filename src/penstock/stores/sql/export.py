"""Reads recent history, takes the census, and saves export cursors."""

from collections.abc import Sequence

from penstock.errors import InvalidState
from penstock.model.message import HistoryRow, Moment
from penstock.model.store_types import Cursor, Exported, Tally
from penstock.stores.sql.records import make_history_row
from penstock.stores.sql.transaction import SqlTransaction


async def epoch(tx: SqlTransaction, cursor: Cursor) -> int:
    """Returns the store's epoch; raises if the cursor is ahead of it."""
    number: int = (await tx.one("number", name="epoch"))[0]
    if cursor.epoch > number:
        raise InvalidState(
            f"the cursor is from epoch {cursor.epoch}, the store is in {number};"
            " it may belong to another store"
        )
    return number


async def frontier(tx: SqlTransaction) -> int:
    number: int = (await tx.one("frontier"))[0]
    return number


async def recent(tx: SqlTransaction, after: int, limit: int) -> list[HistoryRow]:
    rows = await tx.all("recent", after=after, limit=limit)
    return [make_history_row(row) for row in rows]


async def past(tx: SqlTransaction, before: int, after: int, limit: int) -> list[HistoryRow]:
    rows = await tx.all("past", before=before, after=after, limit=limit)
    return [make_history_row(row) for row in rows]


async def census(tx: SqlTransaction) -> list[Tally]:
    return [Tally(*row) for row in await tx.scan("census")]


async def depths(tx: SqlTransaction, ended: int) -> dict[tuple[int, str], int]:
    rows = await tx.all("depths", ended=ended)
    return {(queue_id, place): count for queue_id, place, count in rows}


async def waiting_since(tx: SqlTransaction) -> dict[int, Moment]:
    first = {id: queue_id for queue_id, id in await tx.all("first_ready") if id is not None}
    return {first[id]: since for id, since in (await ready_since(tx, list(first))).items()}


async def ready_since(tx: SqlTransaction, ids: Sequence[int]) -> dict[int, Moment]:
    """Returns since when messages have been ready, from the resume for those that waited."""
    rows = await tx.all("ready_since", ids=tx.encode_ids(sorted(ids)), now=tx.now) if ids else []
    return {id: max(each for each in moments if each is not None) for id, *moments in rows}


async def queues_with_keys(tx: SqlTransaction) -> frozenset[int]:
    return frozenset(queue_id for (queue_id,) in await tx.all("queues_with_keys"))


async def save_cursor(tx: SqlTransaction, name: str, cursor: Cursor) -> None:
    await tx.run(
        "cursor_save",
        name=name,
        epoch=cursor.epoch,
        message=cursor.message,
        history=cursor.history,
        now=tx.now,
    )


async def cursors(tx: SqlTransaction) -> dict[str, Exported]:
    return {
        name: Exported(Cursor(epoch, message, history), advanced_at)
        for name, epoch, message, history, advanced_at in await tx.all("cursors")
    }
