"""Stream offsets: a final position in a table, and the store it belongs to."""

from typing import Any, TypeAlias

from penstock.errors import InvalidState
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.ranges import (
    PAGE,
    find_last_position,
    get_position,
    read_feed,
    read_rows,
)
from penstock.pipeline.lake.schema import Table
from penstock.pipeline.store_access import make_identity
from penstock.store import Store

# Spark stores it as JSON.
Offset: TypeAlias = dict[str, Any]


async def make_first_offset(store: Store) -> Offset:
    return {"store": await make_identity(store), "position": 0}


async def make_last_offset(store: Store, table: Table) -> Offset:
    return {
        "store": await make_identity(store),
        "position": await find_last_position(store, table, 0),
    }


async def make_next_offset(
    store: Store, table: Table, start: Offset, rows: int | None, target: Offset | None
) -> Offset:
    """Returns the end of the next micro-batch, at most `target`, or the start if nothing is new."""
    await refuse_foreign(store, table, start)
    begin = start["position"]
    if rows is None:
        end = await find_last_position(store, table, begin)
    else:
        end = await skip_rows(store, table, begin, rows)
    if target is not None:
        end = max(begin, min(end, target["position"]))
    return start | {"position": end}


async def refuse_foreign(store: Store, table: Table, start: Offset) -> None:
    if start["store"] != await make_identity(store):
        raise InvalidState(
            "the checkpoint belongs to another store; start the stream with a new checkpoint"
        )
    if not await has_reached(store, table, start["position"]):
        raise InvalidState(
            f"the checkpoint is at position {start['position']} of {table}, which the store has not"
            " reached; if it was restored from a backup, start the stream with a new checkpoint"
        )


async def has_reached(store: Store, table: Table, place: int) -> bool:
    """Looks for the row at the position, or for a later one if retention removed it."""
    there = await read_feed(store, table, place - 1, 1, place) if place else None
    if there is None or read_rows(there, table):
        return True
    return await find_last_position(store, table, 0) >= place


async def skip_rows(store: Store, table: Table, begin: int, rows: int) -> int:
    """Returns the position after `rows` rows. Rows that share a position stay together."""
    left = rows
    while left > 0:
        feed = await read_feed(store, table, begin, min(left, PAGE))
        found = read_rows(feed, table)
        if not found:
            return begin
        begin, left = get_position(feed.cursor, table), left - len(found)
    return begin


def make_cursor(offset: Offset, table: Table) -> Cursor:
    at: int = offset["position"]
    return Cursor(message=at) if table == "message" else Cursor(history=at)
