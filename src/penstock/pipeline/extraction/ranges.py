"""Finds the end of a store's feed, splits it into ranges, and reads a range exactly.

Uses only `Store.feed`, so that it works with the positions of any store.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.message import NEVER, HistoryRow, StoredMessage
from penstock.model.store_types import Cursor, Feed
from penstock.pipeline.extraction.arrow import (
    PAGE_BYTES,
    PAGE_ROWS,
    Columnar,
    make_arrow_batch,
    make_batch,
    read_columns,
)
from penstock.pipeline.lake.schema import Table
from penstock.pipeline.store_access import open_existing
from penstock.store import Store

# Rows of the first page, and of the largest.
FIRST_PAGE_SIZE, PAGE_SIZE = 1_000, PAGE_ROWS
# Rows that are read to estimate the density, and the most ranges of a table.
SAMPLE_ROWS, MAX_PARTS = 1_000, 10_000
MAX_PAGE_BYTES, FEW_BYTES = PAGE_BYTES, 4_000_000


class Range(Struct, frozen=True):
    """Selects the rows of one table above `after`, up to `last`."""

    table: Table
    after: int
    last: int
    epoch: int = 0


async def make_ranges(
    store: Store, table: Table, after: Cursor, last: Cursor, rows: int
) -> list[Range]:
    """Splits the rows between two cursors into ranges of about `rows` rows."""
    end = get_position(last, table)
    first, step = await compute_stride(store, table, get_position(after, table), end, rows)
    step = max(step, (end - first) // MAX_PARTS + 1)
    return [
        Range(table, start, min(start + step, end), last.epoch) for start in range(first, end, step)
    ]


async def compute_stride(
    store: Store, table: Table, after: int, end: int, rows: int
) -> tuple[int, int]:
    """Returns the position before the next row, and how many positions hold about `rows` rows.

    A position is one row in some stores and a transaction of thousands in others, so this
    estimates from a sample.
    """
    next_row = await read_feed(store, table, after, 1, end)
    if not read_rows(next_row, table):
        return NEVER, 1
    begin = get_position(next_row.cursor, table)
    sample = await read_feed(store, table, begin, SAMPLE_ROWS, end)
    found, span = len(read_rows(sample, table)), get_position(sample.cursor, table) - begin
    return begin - 1, max(rows * span // found, 1) if found else rows


def get_position(cursor: Cursor, table: Table) -> int:
    return cursor.message if table == "message" else cursor.history


async def find_latest(store: Store, after: Cursor) -> Cursor:
    """Returns the last final position with a row for each table, or `after` if there is none."""
    epoch = (await store.feed(replace(after, message=NEVER, history=NEVER), 1)).cursor.epoch
    # History first, so that every history row has its message.
    history = await find_last_position(store, "history", after.history)
    message = await find_last_position(store, "message", after.message)
    return Cursor(epoch, message, history)


async def find_last_position(store: Store, table: Table, after: int) -> int:
    """Searches exponentially, then by bisection."""
    found, step, beyond = after, 1, NEVER
    while found + 1 < beyond:
        probed = min(found + step, beyond - 1) - 1
        feed = await read_feed(store, table, probed, 1)
        if read_rows(feed, table):
            found, step = get_position(feed.cursor, table), step * 2
        else:
            beyond = probed + 1
        if beyond != NEVER:
            step = max((beyond - found) // 2, 1)
    return found


async def read_feed(
    store: Store, table: Table, after: int, limit: int, known: int | None = None
) -> Feed:
    """Reads the feed of one table, and skips the other."""
    message, history = (after, NEVER) if table == "message" else (NEVER, after)
    final = None if known is None else Cursor(0, known, known)
    return await store.feed(Cursor(0, message, history), limit, final)


def read_rows(feed: Feed, table: Table) -> Sequence[StoredMessage] | Sequence[HistoryRow]:
    return feed.messages if table == "message" else feed.history


async def read_pages(
    store: Store, part: Range
) -> AsyncIterator[Sequence[StoredMessage] | Sequence[HistoryRow]]:
    """Yields exactly the rows of the range. Reads a page that passes its end again, smaller.

    Rows that share a position are never split, so a page of one row is inside or outside.
    """
    after, limit = part.after, FIRST_PAGE_SIZE
    while after < part.last:
        feed = await read_feed(store, part.table, after, limit, part.last)
        rows, reached = read_rows(feed, part.table), get_position(feed.cursor, part.table)
        if reached <= part.last and rows:
            yield rows
            after, limit = reached, choose_next_limit(limit, rows)
        elif not rows or limit == 1:
            return
        else:
            # Rows are usually evenly spread, so this mostly hits the end at once.
            share = len(rows) * (part.last - after) // (reached - after)
            limit = max(min(share, limit // 2), 1)


def choose_next_limit(limit: int, rows: Sequence[StoredMessage] | Sequence[HistoryRow]) -> int:
    """Adapts to the size of bodies, so that a page fits in memory."""
    size = sum(len(row.body) for row in rows if isinstance(row, StoredMessage))
    if size > MAX_PAGE_BYTES:
        return max(limit // 2, 1)
    return min(limit * 4, PAGE_SIZE) if size < FEW_BYTES else limit


def read(url: str, part: Range, schema: Any) -> Iterator[Any]:
    """Yields Arrow batches of a range, for callers without an event loop such as Spark tasks."""
    with asyncio.Runner() as runner:
        store = runner.run(open_existing(url))
        try:
            source = make_batches(store, part, schema)
            while (batch := runner.run(read_next(source))) is not None:
                yield batch
        finally:
            runner.run(store.close())


async def read_next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, None)


async def make_batches(store: Store, part: Range, schema: Any) -> AsyncIterator[Any]:
    queues = {queue.id: queue for queue in await store.queues()}
    if isinstance(dialect := getattr(store, "dialect", None), Columnar):
        async for values in read_columns(dialect, part.table, part.after, part.last):
            yield make_arrow_batch(values.__getitem__, schema, queues)
    else:
        async for rows in read_pages(store, part):
            yield make_batch(rows, schema, queues)
