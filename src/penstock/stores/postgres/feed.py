"""Reads rows in commit order, without gaps, for the export and for retention; restores copies."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import asdict

from penstock.model.copies import StoreDump
from penstock.model.heads import DigestBounds, FeedDigest, HeadFeed
from penstock.model.message import HistoryRow
from penstock.model.store_types import Cursor, Feed, Pruned, Retention
from penstock.stores.postgres.connection import CALL_TIMEOUT_S
from penstock.stores.postgres.transaction import PostgresTransaction
from penstock.stores.sql import copying, export, upkeep
from penstock.stores.sql.copying import COLUMNS, Rows
from penstock.stores.sql.export import make_first_runs, make_head_feed
from penstock.stores.sql.records import decode_meta, make_feed_message, make_history_row

# Ordered by transaction, then by number.
in_order = itemgetter(-1, 0)
# Rows per transaction assumed at first (a typical publish batch): all rows read are sorted.
ASSUMED_ROWS = 1_000
# Maximum growth of the next range.
MAX_GROWTH = 16
# Most transactions that a page begins to look at, because it did so before: they may be dense now.
MAX_SPAN = 256
# Bodies of a page fetched as one value, which the server builds in memory.
MAX_PAGE_BYTES = 64_000_000


def count_grouped(rows: list[Any]) -> int:
    return sum(row[-2] for row in rows)


class FeedTable(NamedTuple):
    """The feed statements of one table."""

    page: str
    between: str
    count: Callable[[list[Any]], int] = len


MESSAGES = FeedTable("feed_messages", "messages_between")
HEADS = FeedTable("heads_messages", "messages_between")
HISTORY = FeedTable("feed_history", "history_between")
DIGEST_MESSAGES = FeedTable("digest_messages", "messages_between")
DIGEST_HISTORY = FeedTable("digest_history", "history_between", count_grouped)
NO_VALUES: Mapping[str, Any] = {}
COLUMN_STATEMENTS = {"message": "message_columns", "history": "history_columns"}


async def feed(tx: PostgresTransaction, cursor: Cursor, limit: int) -> Feed:
    """Reads a page, which may exceed `limit` by the rest of its last transaction."""
    await enable_bitmap_scans(tx)
    epoch = await export.epoch(tx, cursor)
    (horizon,) = await tx.one("horizon")
    messages, message = await read_page(tx, MESSAGES, cursor.message, horizon, limit)
    history, reached = await read_page(tx, HISTORY, cursor.history, horizon, limit)
    return Feed(
        [make_feed_message(row[:-1]) for row in messages],
        [make_history_row(row[:-1]) for row in history],
        Cursor(epoch, message, reached),
    )


async def read_heads(tx: PostgresTransaction, cursor: Cursor, limit: int) -> HeadFeed:
    await enable_bitmap_scans(tx)
    epoch = await export.epoch(tx, cursor)
    (horizon,) = await tx.one("horizon")
    messages, message = await read_page(tx, HEADS, cursor.message, horizon, limit)
    rows, reached = await read_page(tx, HISTORY, cursor.history, horizon, limit)
    history = [make_history_row(row[:-1]) for row in rows]
    return await make_head_feed(tx, messages, history, Cursor(epoch, message, reached))


async def read_digest(
    tx: PostgresTransaction,
    cursor: Cursor,
    limit: int,
    bounds: DigestBounds,
    spans: dict[str, int],
) -> FeedDigest:
    await enable_bitmap_scans(tx)
    epoch = await export.epoch(tx, cursor)
    (horizon,) = await tx.one("horizon")
    messages, message = await read_page(
        tx, DIGEST_MESSAGES, cursor.message, horizon, limit, spans=spans
    )
    rows, reached = await read_page(
        tx, DIGEST_HISTORY, cursor.history, horizon, limit, asdict(bounds), spans
    )
    found: list[Any] = []
    for row in rows:
        if not row[0]:
            span = {"after": cursor.history, "last": reached}
            found = await tx.all("history_of", **span, ids=row[10])
    history = [make_history_row(row[:-1]) for row in sorted(found, key=in_order)]
    return FeedDigest(
        [row[:4] for row in messages],
        [make_first_runs(row, row[8], row[9]) for row in rows if row[0]],
        await make_head_feed(tx, (), history, Cursor(epoch, message, reached)),
        max((row[7] for row in rows), default=0),
    )


async def read_page(
    tx: PostgresTransaction,
    kind: FeedTable,
    after: int,
    horizon: int,
    limit: int,
    more: Mapping[str, Any] = NO_VALUES,
    spans: dict[str, int] | None = None,
) -> tuple[list[Any], int]:
    """Returns the next rows and their last transaction.

    `spans` remembers how many transactions a page of each statement had.
    """
    spans = {} if spans is None else spans
    begin, look = after, spans.get(kind.page, limit // ASSUMED_ROWS + 1)
    while True:
        before = min(horizon, begin + look + 1)
        rows = await tx.all(kind.page, after=begin, before=before, limit=limit, **more)
        count = kind.count(rows)
        if count >= limit or before >= horizon:
            rows = sorted(rows, key=in_order)
            if count >= limit:
                spans[kind.page] = min(rows[-1][-1] - begin + 1, MAX_SPAN)
            return rows, rows[-1][-1] if rows else after
        if rows:
            look *= min(limit // count + 1, MAX_GROWTH)
        elif look < MAX_GROWTH:
            look *= MAX_GROWTH
        else:
            begin = await find_position_before_next(tx, kind, before - 1, horizon)


async def find_position_before_next(
    tx: PostgresTransaction, kind: FeedTable, after: int, horizon: int
) -> int:
    """Finds the position before the next row by doubling, then bisecting."""
    low, high, step = after, min(after + 1, horizon), MAX_GROWTH
    while high < horizon and not await has_rows_between(tx, kind, low, high):
        low, high, step = high, min(high + step, horizon), step * MAX_GROWTH
    while high - low > 1:
        middle = (low + high) // 2
        if await has_rows_between(tx, kind, low, middle):
            high = middle
        else:
            low = middle
    return low


async def has_rows_between(tx: PostgresTransaction, kind: FeedTable, after: int, last: int) -> bool:
    found: bool = (await tx.one(kind.between, after=after, last=last))[0]
    return found


async def read_columns(
    tx: PostgresTransaction, table: str, after: int, last: int, limit: int
) -> dict[str, list[Any]] | None:
    await enable_bitmap_scans(tx)
    # A larger sort spills to disk.
    await tx.connection.execute("SET LOCAL work_mem = '64MB'")
    alone = last == after + 1
    bounds = {"after": after, "last": last, "limit": None if alone else limit + 1}
    row = await tx.one(COLUMN_STATEMENTS[table], **bounds, most=MAX_PAGE_BYTES)
    found = {name: values or [] for name, values in row.items()}
    large = len(found.get("body", found["id"])) < len(found["id"])
    if not alone and (large or len(found["id"]) > limit):
        return None
    if large:
        rows = await tx.all("feed_messages", after=after, before=last + 1, limit=1)
        found = {name: [row[name] for row in rows] for name in found}
    if table == "message":
        found["meta"] = list(map(decode_meta, found["meta"]))
    return found


async def recent(
    tx: PostgresTransaction, after: int, limit: int, beyond: Cursor | None
) -> list[HistoryRow]:
    """A cursor names a transaction, which is no position of a row."""
    await enable_bitmap_scans(tx)
    rows = await tx.all("recent", after=after, limit=limit, passed=beyond.history if beyond else 0)
    return [make_history_row(row) for row in rows]


async def past(tx: PostgresTransaction, before: int, after: int, limit: int) -> list[HistoryRow]:
    await enable_bitmap_scans(tx)
    return await export.past(tx, before, after, limit)


async def find_prunable(tx: PostgresTransaction, retention: Retention) -> tuple[list[int], Pruned]:
    await enable_bitmap_scans(tx)
    return await upkeep.find_prunable(tx, retention)


async def prune(tx: PostgresTransaction, retention: Retention) -> Pruned:
    await enable_bitmap_scans(tx)
    return await upkeep.prune(tx, retention)


async def enable_bitmap_scans(tx: PostgresTransaction) -> None:
    """Allows bitmap scans, the only way to read a BRIN index."""
    await tx.connection.execute("SET LOCAL enable_bitmapscan = on")


async def restore(tx: PostgresTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    await tx.one("restore_counters", **asdict(page.counters))
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: PostgresTransaction, table: str, rows: Rows) -> None:
    if table == "dedup":
        await insert_keys(tx, rows)
        return
    if table == "message":
        # A rank that follows from the priority is not stored.
        rows = [(*row[:4], None if row[4] == -row[3] else row[4], *row[5:]) for row in rows]
    await tx.connection.copy_records_to_table(
        table, schema_name="penstock", columns=COLUMNS[table], records=rows, timeout=CALL_TIMEOUT_S
    )
    if table == "signal":
        await tx.one("restore_signal_ids")


async def insert_keys(tx: PostgresTransaction, rows: Rows) -> None:
    """Skips keys that are there: COPY cannot."""
    queue_ids, keys, ids, digests, expires_ats = zip(*rows, strict=True)
    await tx.run(
        "restore_dedup", queue_ids=queue_ids, keys=keys, ids=ids, digests=digests,
        expires_ats=expires_ats,
    )  # fmt: skip
