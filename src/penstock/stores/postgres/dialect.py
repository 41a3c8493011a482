"""PostgreSQL's own statements: hot verbs are one statement each."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

import asyncpg

from penstock.errors import NotYet, StoreBusy, StoreError
from penstock.model.copies import StoreDump
from penstock.model.heads import DigestBounds, FeedDigest, HeadFeed
from penstock.model.message import MAX_POSITION, PLAIN, Flag, HistoryRow, Leased, Moment
from penstock.model.store_types import (
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Extension,
    Feed,
    Firing,
    Lock,
    Move,
    Pruned,
    Published,
    Retention,
)
from penstock.model.waiting import SignalAnswer, SignalDraft, StepRecord, StepSave
from penstock.retry_policies import TRANSACTION, Retries
from penstock.store import Check
from penstock.stores.postgres import caller_transaction, feed, health, publish, schema, waiting
from penstock.stores.postgres.caller_transaction import KINDS
from penstock.stores.postgres.claim_cursor import ClaimCursor, ClaimSpan, CursorPosition
from penstock.stores.postgres.connection import PostgresDsn
from penstock.stores.postgres.notifier import PostgresNotifier
from penstock.stores.postgres.transaction import PostgresTransaction, locks_of
from penstock.stores.sql import upkeep
from penstock.stores.sql.caller_transaction import Inside
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.firing import fire
from penstock.stores.sql.publish import list_queue_ids
from penstock.stores.sql.records import decode_meta_json
from penstock.stores.sql.transaction import SqlTransaction

Locked = TypeVar("Locked", Completion, Extension)
# How often the indexes of the feed are brought up to date while it is read in small pages.
SUMMARIZE_INTERVAL_S = 0.25


class PostgresDialect:
    def __init__(
        self,
        database: ServerDatabase[asyncpg.Connection, PostgresTransaction],
        notifier: PostgresNotifier,
        address: PostgresDsn,
        seal: str,
    ) -> None:
        self.database = database
        self.notifier = notifier
        self.address = address
        # Identifies the store, to check that a caller's connection is to the same one.
        self.seal = seal
        self.cursors: dict[int, ClaimCursor] = {}
        # True while others wait for the messages that are claimed.
        self.awaited = False
        self.summarized_at = -inf
        # How many transactions the last pages of the digest had.
        self.spans: dict[str, int] = {}

    # Producers and consumers.

    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        name, values = publish.make_call(entries)
        outcomes = publish.make_published(await self.database.fetch(name, values))
        self.notifier.notify(list_queue_ids(entries))
        return outcomes

    async def enqueue_fanouts(self, entries: Sequence[Entry]) -> list[Published] | None:
        if (values := publish.make_fanout_call(entries)) is None:
            return None
        rows = await self.database.fetch("publish_fanout", values)
        if rows:
            self.notifier.notify(set(values["copy_queue_ids"]))
        return publish.make_fanout_outcomes(len(entries), rows)

    async def save_step(self, item: StepSave) -> StepRecord | None:
        return await waiting.save_step(self.database, item)

    async def signal_held(self, draft: SignalDraft) -> SignalAnswer | None:
        return await waiting.signal_held(self.database, draft)

    def inside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(KINDS.adapt(connection), self.seal)

    async def ainside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(await KINDS.adapt_async(connection), self.seal)

    async def claim(self, claim: Claim) -> Claimed:
        way = choose_pick(claim)
        rows = await self.pick_one(claim) if way == "pick_one" else await self.pick(way, claim)
        if not rows or rows[-1][0] is not None:
            leased = make_leased(rows)
            # Messages of one publish are claimed together, so the first represents the others.
            if leased and leased[0].flags & Flag.AWAITED:
                self.awaited = True
            return Claimed(leased)
        rows.pop()
        if rows:
            # These are claimed already, whatever happens to the rest.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(make_leased(rows))
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def pick(self, way: str, claim: Claim, after: CursorPosition | None = None) -> list[Any]:
        values = make_terms(claim)
        if after is not None:
            values |= {"rank": after.rank, "id": after.id}
        retries: Retries | None = None
        while True:
            try:
                return await self.database.fetch(way, values)
            except StoreBusy as error:
                # SKIP LOCKED waits for no row, and other locks are brief.
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                retries = retries or TRANSACTION.begin()
                if not await retries.again():
                    raise

    async def pick_one(self, claim: Claim) -> list[Any]:
        """Claims from the head of one queue, or from its claim cursor."""
        line = self.cursors.setdefault(claim.queue_ids[0], ClaimCursor())
        heard, started = self.notifier.heard_of(claim.queue_ids[0]), time.monotonic()
        after = line.choose_start(started, heard)
        if after is not None:
            rows = await self.pick("pick_after", claim, after)
            if rows:
                line.advance(measure_claim(started, rows), find_last_position(rows))
                return rows
            started = time.monotonic()
        rows = await self.pick("pick_one", claim)
        line.record_claim(measure_claim(started, rows), heard, find_last_position(rows))
        return rows

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends expired messages as a set; those with keys to free one by one."""
        most = self.database.capabilities.max_batch
        ((ended,),) = await self.database.fetch(
            "expire_ready", {"queues": list(queue_ids), "limit": most}
        )
        return bool(ended or await self.database.write(end_expired, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows = await self.database.fetch("claim_dead", make_terms(claim))
        return Claimed(make_leased(rows))

    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        name, values = make_completion(items)
        if not self.awaited:
            return await self.database.fetch(name, values)
        values.setdefault("results", [None] * len(values["ids"]))
        rows = await self.database.fetch("complete_awaited", values)
        self.awaited = any(awaited for _, _, awaited in rows)
        return [(id, fence) for id, fence, _ in rows]

    async def extend_set(self, items: Sequence[Extension]) -> list[Any]:
        return await self.database.fetch("extend_many", make_extension(items))

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        free = {tuple(row) for row in await self.database.fetch("free_leases", locks_of(items))}
        return [item for item in items if (item.id, item.fence) in free]

    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]:
        return await self.database.fetch("leases", locks_of(locks))

    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        rows = await self.database.fetch("settle_many", make_moves(moves))
        self.notifier.notify({queue_id for _, queue_id, state in rows if state == "ready"})
        return rows

    # Agents.

    async def now(self) -> Moment:
        moment: Moment = (await self.database.fetch("moment"))[0][0]
        return moment

    async def promote_set(self, limit: int) -> list[int]:
        rows = await self.database.fetch("promote_many", {"limit": limit})
        return [queue_id for (queue_id,) in rows]

    async def expire(self, limit: int) -> int:
        """Expires as sets; messages with keys to free one by one."""
        ended = 0
        for name in ("expire_ready", "expire_scheduled"):
            if ended < limit:
                values = {"limit": limit - ended, "queues": None}
                ended += (await self.database.fetch(name, values))[0][0]
        if ended < limit and await self.database.look(upkeep.any_expired):
            ended += await self.database.write(upkeep.expire, limit - ended)
        return ended

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.database.write(fire, firings)

    async def prune(self, retention: Retention) -> Pruned:
        ids, pruned = await self.database.read(feed.find_prunable, retention)
        return await self.database.write(with_audit(feed.prune), retention) if ids else pruned

    # Operators and export.

    async def index_types(self) -> None:
        await schema.build_type_index(self.address)

    async def examine(self) -> list[Check]:
        return await self.database.read(health.examine, self.address)

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.address.where}: back it up with pg_dump, which needs no downtime")

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        return await self.database.read(feed.feed, cursor, limit)

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed:
        await self.summarize()
        return await self.database.read(feed.read_heads, cursor, limit)

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest:
        await self.summarize()
        return await self.database.read(feed.read_digest, cursor, limit, bounds, self.spans)

    async def summarize(self) -> None:
        """Lets the feed find new rows by their index, now and then."""
        now = time.monotonic()
        if now - self.summarized_at > SUMMARIZE_INTERVAL_S:
            self.summarized_at = now
            # A role that does not own the tables may not, and autovacuum may be at it.
            with suppress(StoreError):
                await self.database.fetch("summarize")

    async def columns(
        self, table: str, after: int, last: int, limit: int
    ) -> dict[str, list[Any]] | None:
        return await self.database.read(feed.read_columns, table, after, last, limit)

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        return await self.database.read(feed.past, before, after, limit)

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]:
        return await self.database.read(feed.recent, after, limit, beyond)

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        return await self.database.write(feed.restore, page, queue_ids)


def measure_claim(started: float, rows: list[Any]) -> ClaimSpan:
    ended = time.monotonic()
    return ClaimSpan(ended - started, ended, len(rows))


def choose_pick(claim: Claim) -> str:
    if claim.types:
        return "pick_types"
    return "pick_one" if len(claim.queue_ids) == 1 else "pick_line"


def make_terms(claim: Claim) -> dict[str, Any]:
    return {
        "queues": claim.queue_ids,
        "types": tuple(dict.fromkeys(claim.types)),
        "limit": claim.limit,
        "length": int(claim.lease * 1_000_000),
        "consumer": claim.consumer,
        "begins": claim.begins,
    }


def find_last_position(rows: list[Any]) -> CursorPosition | None:
    """Returns the position of the last claimed message; a row behind it may mark expired ones."""
    for row in reversed(rows):
        if row[0] is not None:
            return CursorPosition(row[-1], row[0])
    return None


def make_leased(rows: list[Any]) -> list[Leased]:
    return [
        Leased(
            id, queue, type_, priority, created, body,
            PLAIN if meta is None else decode_meta_json(meta),
            fence, attempts, deliveries, until, flags,
        )
        for (
            id, queue, type_, priority, created, body, meta, fence, attempts, deliveries, until,
            flags, _,
        ) in rows
    ]  # fmt: skip


async def end_expired(tx: SqlTransaction, queues: Sequence[int], limit: int) -> int:
    """Ends expired messages of these queues."""
    rows = await tx.all("expired_in_line", queues=list(queues), now=tx.now, limit=limit)
    return await upkeep.end_all(tx, rows)


def make_completion(items: Sequence[Completion]) -> tuple[str, dict[str, Any]]:
    ids = [item.id for item in items]
    if len(set(ids)) < len(ids):
        # If a batch completes one lease several times, the first completion counts.
        items = list({(item.id, item.fence): item for item in reversed(items)}.values())
        ids = [item.id for item in items]
    values: dict[str, Any] = {"ids": ids, "fences": [item.fence for item in items]}
    results = [item.result for item in items]
    if results.count(None) == len(results):
        return "complete", values
    return "complete_with_results", values | {"results": results}


def make_extension(items: Sequence[Extension]) -> dict[str, Any]:
    return {
        "ids": [item.id for item in items],
        "fences": [item.fence for item in items],
        "lengths": [int(item.lease * 1_000_000) for item in items],
    }


def make_moves(moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "ids": [move.id for move in moves],
        "fences": [move.fence for move in moves],
        "flags": [move.seen_flags for move in moves],
        "expired_bys": [
            MAX_POSITION if move.expired_by is None else move.expired_by for move in moves
        ],
        "verbs": [move.verb.value for move in moves],
        "states": [move.state.value for move in moves],
        "attempts": [move.attempts for move in moves],
        "deliveries": [move.deliveries for move in moves],
        "reasons": [move.reason for move in moves],
        "errors": [move.error for move in moves],
        "delays": [int(move.delay * 1_000_000) for move in moves],
        "ranked": [move.rank_by_due for move in moves],
        "tracebacks": [move.traceback for move in moves],
    }
