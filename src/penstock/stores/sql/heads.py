"""Completes a page of the feed with message heads and earlier rests, without reading bodies."""

from collections.abc import Sequence
from typing import Any

from penstock.model.heads import FeedHead, FirstRuns, HeadFeed, Rest
from penstock.model.message import HistoryRow
from penstock.model.store_types import Cursor
from penstock.rules.digests import sort_durations
from penstock.stores.sql.records import STATES, VERBS, decode_meta
from penstock.stores.sql.transaction import SqlTransaction


async def make_head_feed(
    tx: SqlTransaction, messages: Sequence[Any], history: list[HistoryRow], cursor: Cursor
) -> HeadFeed:
    page = [make_head(row) for row in messages]
    heads = {head.id: head for head in page}
    ids = {row.id for row in history}
    if missing := sorted(ids - heads.keys()):
        rows = await tx.all("heads_of", ids=tx.encode_ids(missing))
        heads |= {row[0]: make_head(row) for row in rows}
    rests: dict[int, list[Rest]] = {}
    if ids:
        for id, *row in await tx.all("rests_of", ids=tx.encode_ids(sorted(ids))):
            rests.setdefault(id, []).append(make_rest(row))
    return HeadFeed(page, history, heads, rests, cursor)


def make_first_runs(row: Any, runs: list[int], waits: list[int]) -> FirstRuns:
    """Takes a row of `digest_history`, which begins with whether it is a group."""
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


def make_rest(row: Sequence[Any]) -> Rest:
    position, verb, state, error, consumer, at, due_at = row
    return Rest(position, VERBS[verb], STATES[state], error, consumer, at, due_at)
