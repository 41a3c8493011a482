"""Reads recent history and the feed of heads, takes the census, and saves export cursors."""

from collections.abc import Sequence
from typing import Any

from penstock.errors import InvalidState
from penstock.model.heads import EarlierRow, FeedHead, FirstRuns, HeadFeed
from penstock.model.message import HistoryRow, Moment
from penstock.model.store_types import Cursor, Exported, PlaceCount
from penstock.stores.sql.records import STATES, VERBS, decode_meta, make_history_row
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


async def census(tx: SqlTransaction) -> list[PlaceCount]:
    return [PlaceCount(*row) for row in await tx.scan("census")]


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


async def make_head_feed(
    tx: SqlTransaction, messages: Sequence[Any], history: list[HistoryRow], cursor: Cursor
) -> HeadFeed:
    page = [make_head(row) for row in messages]
    heads = {head.id: head for head in page}
    ids = {row.id for row in history}
    if missing := sorted(ids - heads.keys()):
        rows = await tx.all("heads_of", ids=tx.encode_ids(missing))
        heads |= {row[0]: make_head(row) for row in rows}
    rests: dict[int, list[EarlierRow]] = {}
    if ids:
        for id, *row in await tx.all("rests_of", ids=tx.encode_ids(sorted(ids))):
            rests.setdefault(id, []).append(make_rest(row))
    return HeadFeed(page, history, heads, rests, cursor)


def make_first_runs(row: Any, runs: list[int], waits: list[int]) -> FirstRuns:
    """Takes a row of `digest_history`, which begins with whether it is a group."""
    from penstock.rules.digests import sort_durations

    _, queue_id, type_, minute, consumer, first_claimed_at, last_at = row[:7]
    return FirstRuns(
        queue_id, type_, minute, consumer, first_claimed_at, last_at,
        sort_durations(runs), sort_durations(waits),
    )  # fmt: skip


def make_head(row: Any) -> FeedHead:
    id, queue_id, type_, created_at, run_at, size, meta = row[:7]
    if meta is None:
        return FeedHead(id, queue_id, type_, created_at, run_at, size)
    decoded = decode_meta(meta)
    return FeedHead(
        id, queue_id, type_, created_at, run_at, size, decoded.max_attempts, decoded.lease
    )


def make_rest(row: Sequence[Any]) -> EarlierRow:
    position, verb, state, error, consumer, at, due_at = row
    return EarlierRow(position, VERBS[verb], STATES[state], error, consumer, at, due_at)
