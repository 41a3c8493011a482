"""Stretches of a store's feed: where it ends now, how to divide it, how to read one exactly.

All by `feed` alone, so a position means whatever the store means by it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.message import NEVER, HistoryRow, StoredMessage
from penstock.model.store_types import Cursor, Feed
from penstock.pipeline.extraction.arrow import make_arrow_batch, make_batch
from penstock.pipeline.extraction.columnar import PAGE_BYTES, PAGE_ROWS, Columnar, read_columns
from penstock.pipeline.lake.schema import Table
from penstock.pipeline.store_access import open_existing
from penstock.store import Store

# Rows of a page, at first and at most; and how much of bodies is too much, or little.
FIRST_PAGE, PAGE = 1_000, PAGE_ROWS
# How many rows show how dense the others are, and how many parts are too many.
SAMPLE_ROWS, MAX_PARTS = 1_000, 10_000
MAX_PAGE_BYTES, FEW_BYTES = PAGE_BYTES, 4_000_000


class Range(Struct, frozen=True):
    """The rows of one table above `after`, up to `last`."""

    table: Table
    after: int
    last: int
    epoch: int = 0


async def make_ranges(
    store: Store, table: Table, after: Cursor, last: Cursor, rows: int
) -> list[Range]:
    """What is between the two, in parts of about so many rows."""
    end = get_position(last, table)
    first, step = await compute_stride(store, table, get_position(after, table), end, rows)
    step = max(step, (end - first) // MAX_PARTS + 1)
    return [
        Range(table, start, min(start + step, end), last.epoch) for start in range(first, end, step)
    ]


async def compute_stride(
    store: Store, table: Table, after: int, end: int, rows: int
) -> tuple[int, int]:
    """Where the next row is about to come, and how many positions hold about so many rows.

    A position is a row here, a transaction of thousands there: the first ones show it.
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
    """The last position of each table that holds a row and is final; `after` if there is none."""
    epoch = (await store.feed(replace(after, message=NEVER, history=NEVER), 1)).cursor.epoch
    # History first: no row of it is without its message.
    history = await find_last_position(store, "history", after.history)
    message = await find_last_position(store, "message", after.message)
    return Cursor(epoch, message, history)


async def find_last_position(store: Store, table: Table, after: int) -> int:
    """Leaps, then halves: the feed after a position holds something, or nothing ever further."""
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
    """A feed of one table: that of the other ends before it begins."""
    message, history = (after, NEVER) if table == "message" else (NEVER, after)
    final = None if known is None else Cursor(0, known, known)
    return await store.feed(Cursor(0, message, history), limit, final)


def read_rows(feed: Feed, table: Table) -> Sequence[StoredMessage] | Sequence[HistoryRow]:
    return feed.messages if table == "message" else feed.history


async def read_pages(
    store: Store, part: Range
) -> AsyncIterator[Sequence[StoredMessage] | Sequence[HistoryRow]]:
    """Exactly the rows of the range. A page that reaches past its end is asked for again, smaller.

    What shares a position is never divided, so a page of one is either inside or outside.
    """
    after, limit = part.after, FIRST_PAGE
    while after < part.last:
        feed = await read_feed(store, part.table, after, limit, part.last)
        rows, reached = read_rows(feed, part.table), get_position(feed.cursor, part.table)
        if reached <= part.last and rows:
            yield rows
            after, limit = reached, choose_next_limit(limit, rows)
        elif not rows or limit == 1:
            return
        else:
            # Most often the positions left hold their share of the rows, and the next page is it.
            share = len(rows) * (part.last - after) // (reached - after)
            limit = max(min(share, limit // 2), 1)


def choose_next_limit(limit: int, rows: Sequence[StoredMessage] | Sequence[HistoryRow]) -> int:
    """Bodies may be small or large: a page is to fit in memory either way."""
    size = sum(len(row.body) for row in rows if isinstance(row, StoredMessage))
    if size > MAX_PAGE_BYTES:
        return max(limit // 2, 1)
    return min(limit * 4, PAGE) if size < FEW_BYTES else limit


def read(url: str, part: Range, schema: Any) -> Iterator[Any]:
    """Arrow batches of a range, for a caller without an event loop: a task of Spark."""
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
    if isinstance(store, Columnar):
        async for values in read_columns(store, part.table, part.after, part.last):
            yield make_arrow_batch(values.__getitem__, schema, queues)
    else:
        async for rows in read_pages(store, part):
            yield make_batch(rows, schema, queues)
