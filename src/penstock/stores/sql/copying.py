"""Dumps messages with everything kept about them, and restores them under the same ids."""

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.model.copies import (
    CopyCursor,
    StoreCounters,
    StoredKey,
    StoredLife,
    StoredResult,
    StoredTicket,
    StoreDump,
    StoredWaits,
)
from penstock.model.message import NEVER, PLAIN, TICKET_PLACES, Flag, HistoryRow, Meta, TicketPlace
from penstock.rules.items import is_replaced
from penstock.stores.sql import copying_waits
from penstock.stores.sql.records import make_feed_message, make_history_row
from penstock.stores.sql.transaction import SqlTransaction

# The bytes of bodies in a page.
MAX_PAGE_BYTES = 8_000_000
COLUMNS = {
    "message": (
        "id", "queue_id", "type", "priority", "rank", "created_at", "run_at", "expires_at", "body",
        "meta",
    ),
    "ready": ("queue_id", "rank", "id", "type", "attempts", "deliveries", "expires_at", "flags"),
    "scheduled": (
        "queue_id", "rank", "id", "type", "attempts", "deliveries", "expires_at", "flags",
        "due_at", "key", "position",
    ),
    "dead": (
        "queue_id", "rank", "id", "type", "attempts", "deliveries", "flags", "dead_at", "reason",
        "error",
    ),
    "head": ("queue_id", "key", "id"),
    "history": (
        "id", "queue_id", "verb", "state", "reason", "error", "attempts", "deliveries", "consumer",
        "fence", "claimed_at", "at", "due_at", "final", "traceback",
    ),
    "dedup": ("queue_id", "key", "id", "digest", "expires_at"),
    "name": ("queue_id", "name", "id"),
    "result": ("id", "expires_at", "body"),
    **copying_waits.COLUMNS,
}  # fmt: skip
encode_meta = msgspec.json.Encoder().encode
Rows: TypeAlias = Sequence[tuple[Any, ...]]
# Inserts rows into a table, with the columns above.
Insert: TypeAlias = Callable[[Any, str, Rows], Awaitable[None]]


async def count_waits(tx: SqlTransaction) -> int:
    (count,) = await tx.one("copy_waits")
    return int(count)


async def dump(tx: SqlTransaction, cursor: CopyCursor, limit: int) -> StoreDump:
    counters = StoreCounters(*await tx.one("copy_counters"))
    if cursor.keys is not None:
        keys = await list_keys(tx, cursor.keys, limit)
        after = json.dumps([keys[-1].queue_id, keys[-1].key]) if len(keys) == limit else None
        return StoreDump(counters, CopyCursor(after, cursor.message), keys)
    chosen = await choose_span(tx, cursor.message, limit)
    if chosen is None:
        return StoreDump(counters, cursor, after=cursor.message, done=True)
    span, has_waits = chosen
    waits = await copying_waits.read_waits(tx, span) if has_waits else {}
    return StoreDump(
        counters,
        CopyCursor(None, span["last"]),
        lives=await read_lives(tx, span, waits),
        results=await copying_waits.read_removed_results(tx, span) if has_waits else {},
        after=cursor.message,
    )


async def list_keys(tx: SqlTransaction, after: str, limit: int) -> list[StoredKey]:
    queue_id, key = json.loads(after) if after else (0, "")
    rows = await tx.all("copy_keys", queue_id=queue_id, key=key, limit=limit, now=tx.now)
    return [StoredKey(row[0], row[1], row[2], bytes(row[3]), row[4]) for row in rows]


async def choose_span(
    tx: SqlTransaction, after: int, limit: int
) -> tuple[dict[str, int], bool] | None:
    """Returns the first and last id of a page and if it may have waits.

    None means that no message is left.
    """
    sizes = await tx.all("copy_sizes", after=after, limit=limit)
    if not sizes:
        return None
    first = last = sizes[0][0]
    waits: Counter[int] = Counter()
    for id, size in await tx.all("copy_wait_sizes", first=first, last=sizes[-1][0]):
        waits[id] += int(size)
    total = 0
    for id, size in sizes:
        total += size + waits[id]
        if total > MAX_PAGE_BYTES and id != first:
            break
        last = id
    return {"first": first, "last": last}, bool(waits)


async def read_lives(
    tx: SqlTransaction, span: dict[str, int], waits: Mapping[int, StoredWaits]
) -> list[StoredLife]:
    rows = await tx.all("copy_messages", **span)
    history: dict[int, list[HistoryRow]] = defaultdict(list)
    for row in await tx.all("copy_history", **span):
        history[row[1]].append(make_history_row(row[:-1], row[-1]))
    results = {
        id: StoredResult(bytes(body), expires_at)
        for id, expires_at, body in await tx.all("copy_results", **span)
    }
    ended = {id for id, rows in history.items() if rows[-1].final}
    tickets = await read_tickets(tx, span, {row[0] for row in rows} - ended)
    return [
        StoredLife(
            make_feed_message(row[:9]), row[9], tickets.get(row[0]), tuple(history.get(row[0], ())),
            results.get(row[0]), waits.get(row[0]),
        )
        for row in rows
    ]  # fmt: skip


async def read_tickets(
    tx: SqlTransaction, span: dict[str, int], unfinished: set[int]
) -> dict[int, StoredTicket]:
    if not unfinished:
        return {}
    heads = {id for (id,) in await tx.all("copy_heads", **span)}
    tickets = {}
    for place in TICKET_PLACES:
        for id, *values in await tx.all(f"copy_{place}", **span):
            tickets[id] = make_ticket(place, values, id in heads)
    if not unfinished <= tickets.keys():
        # The rank of a ready ticket is no longer the one it was published with.
        for id, *values in await tx.all("copy_ready_scan", **span):
            tickets[id] = make_ticket("ready", values, id in heads)
    return tickets


def make_ticket(place: TicketPlace, values: Sequence[Any], head: bool) -> StoredTicket:
    rank, attempts, deliveries, flags, *rest = values
    names = ("due_at", "position") if place == "scheduled" else ("dead_at", "reason", "error")
    return StoredTicket(
        place, rank, attempts, deliveries, flags, head, **dict(zip(names, rest, strict=False))
    )


async def restore(
    tx: SqlTransaction, insert: Insert, page: StoreDump, queue_ids: Mapping[int, int]
) -> int:
    """Writes the keys, and the messages that are not stored yet, under the queue ids given."""
    await insert_all(tx, insert, {"dedup": [make_key_row(key, queue_ids) for key in page.keys]})
    if not page.lives:
        return 0
    span = {"first": page.lives[0].message.id, "last": page.lives[-1].message.id}
    stored = {id for (id,) in await tx.all("copy_stored", **span)}
    fresh = [life for life in page.lives if life.message.id not in stored]
    await insert_all(tx, insert, make_rows(fresh, queue_ids))
    if page.results:
        missing = await copying_waits.choose_missing(tx, page.results)
        await insert_all(tx, insert, {"result": missing})
    tx.woken.update(queue_ids[life.message.queue_id] for life in fresh)
    return len(fresh)


async def insert_all(
    tx: SqlTransaction, insert: Insert, tables: Mapping[str, list[tuple[Any, ...]]]
) -> None:
    for table, rows in tables.items():
        if rows:
            await insert(tx, table, rows)


def make_key_row(key: StoredKey, queue_ids: Mapping[int, int]) -> tuple[Any, ...]:
    return (queue_ids[key.queue_id], key.key, key.id, key.digest, key.expires_at)


def make_rows(
    lives: Iterable[StoredLife], queue_ids: Mapping[int, int]
) -> dict[str, list[tuple[Any, ...]]]:
    tables: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}
    past: list[tuple[HistoryRow, int]] = []
    for life in lives:
        message = life.message
        queue_id, meta = queue_ids[message.queue_id], message.meta
        tables["message"].append((
            message.id, queue_id, message.type, message.priority, life.rank, message.created_at,
            message.run_at, message.expires_at, message.body, encode_plain_meta(meta),
        ))  # fmt: skip
        if meta.name is not None and not has_lost_name(life):
            tables["name"].append((queue_id, meta.name, message.id))
        if life.ticket is not None:
            add_ticket(tables, life, life.ticket, queue_id)
        if life.result is not None:
            tables["result"].append((message.id, life.result.expires_at, life.result.body))
        if life.waits is not None:
            copying_waits.add_waits(tables, message.id, life.waits)
        past += [(row, queue_id) for row in life.history]
    # Retention reads history in the order of time.
    past.sort(key=lambda each: (each[0].at, each[0].position))
    tables["history"] = [make_history(row, queue_id) for row, queue_id in past]
    return tables


def has_lost_name(life: StoredLife) -> bool:
    """True if another message has taken over its name."""
    return bool(life.history) and is_replaced(life.history[-1].state, life.history[-1].reason)


def encode_plain_meta(meta: Meta) -> str | None:
    return None if meta is PLAIN or meta == PLAIN else encode_meta(meta).decode()


def add_ticket(
    tables: dict[str, list[tuple[Any, ...]]], life: StoredLife, ticket: StoredTicket, queue_id: int
) -> None:
    message, key = life.message, life.message.meta.ordering_key
    counts = (ticket.attempts, ticket.deliveries)
    begin = (queue_id, ticket.rank, message.id, message.type, *counts)
    if ticket.place == "dead":
        tables["dead"].append((*begin, ticket.flags, ticket.dead_at, ticket.reason, ticket.error))
    else:
        expires_at = NEVER if message.expires_at is None else message.expires_at
        row: tuple[Any, ...] = (*begin, expires_at, ticket.flags)
        if ticket.place == "scheduled":
            # A held message gets in the line of its key when nothing else holds it.
            waits_for = None if ticket.flags & Flag.HELD else key
            row += (ticket.due_at, waits_for, ticket.position)
        tables[ticket.place].append(row)
    if ticket.head:
        tables["head"].append((queue_id, key, message.id))


def make_history(row: HistoryRow, queue_id: int) -> tuple[Any, ...]:
    return (
        row.id, queue_id, row.verb.value, row.state.value, row.reason, row.error, row.attempts,
        row.deliveries, row.consumer, row.fence, row.claimed_at, row.at, row.due_at, row.final,
        row.traceback,
    )  # fmt: skip
