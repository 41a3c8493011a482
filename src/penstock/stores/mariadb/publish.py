"""Publishes plain entries as one packet, and publishes and completes entries with ordering keys.

A caller that publishes or completes keyed entries holds the locks of their keys.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.model.message import NEVER, Flag, Moment, State, Verb
from penstock.model.store_types import Completion, Entry, Published
from penstock.stores.mariadb.statement import (
    RawSql,
    fill_statement,
    to_json_array,
    to_literal,
    to_tuples,
)
from penstock.stores.sql.publish import compute_due_at, compute_expires_at, compute_rank, ticket_of
from penstock.stores.sql.results import keep_result
from penstock.stores.sql.transaction import DeliveryRow, SqlTransaction, Ticket

NOW = "@now"
# Bytes of bodies in a packet; as hexadecimal they are twice as long.
ONE_PACKET = 4_000_000


def make_statements(entries: Sequence[Entry]) -> list[str]:
    """Returns the statements; the first yields the id of the first message."""
    more = len(entries) - 1
    rows = RawSql(",\n".join(map(make_row, entries)))
    texts = [fill_statement("publish", rows=rows)]
    if any(entry.run_at is not None or entry.delay for entry in entries):
        return [
            *texts,
            fill_statement("publish_ready", more=more),
            fill_statement("publish_scheduled", more=more),
        ]
    if more:
        return [*texts, fill_statement("publish_ready", more=more)]
    return [*texts, fill_statement("publish_one", **make_ticket(entries[0]))]


def make_ticket(entry: Entry) -> dict[str, Any]:
    ends = expires_at_sql(entry)
    return {
        "queue_id": entry.queue_id,
        "rank": RawSql(rank_sql(entry, None)),
        "type": entry.type,
        "expires_at": NEVER if ends == "NULL" else RawSql(ends),
    }


def make_row(entry: Entry) -> str:
    due = due_at_sql(entry)
    values = (
        str(entry.queue_id), to_literal(entry.type), str(entry.priority), rank_sql(entry, due), NOW,
        "NULL" if due is None else f"if({due} > {NOW}, {due}, NULL)", expires_at_sql(entry),
        to_literal(entry.body), to_literal(entry.meta),
    )  # fmt: skip
    return f"({', '.join(values)})"


def due_at_sql(entry: Entry) -> str | None:
    """Returns the due time as SQL; None means at once."""
    if entry.run_at is not None:
        return str(entry.run_at)
    return f"{NOW} + {int(entry.delay * 1_000_000)}" if entry.delay else None


def rank_sql(entry: Entry, due: str | None) -> str:
    match entry.basis:
        case "zero":
            return str(entry.rank)
        case "created":
            return f"{entry.rank} + {NOW} DIV 1000"
        case "due":
            later = NOW if due is None else f"greatest({due}, {NOW})"
            return f"{entry.rank} + ({later}) DIV 1000"


def expires_at_sql(entry: Entry) -> str:
    if entry.ttl is None:
        return to_literal(entry.expires_at)
    ends = f"{NOW} + {int(entry.ttl * 1_000_000)}"
    return ends if entry.expires_at is None else f"least({entry.expires_at}, {ends})"


def make_published(first: int, count: int) -> list[Published]:
    """Builds the outcomes: ids are consecutive, in the order of the entries."""
    return [Published(id) for id in range(first, first + count)]


def split_into_packets(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Splits entries so that each part fits into a packet, if a single message does."""
    start = length = 0
    for end, entry in enumerate(entries):
        length += len(entry.body)
        if start < end and length > ONE_PACKET:
            yield entries[start:end]
            start, length = end, len(entry.body)
    yield entries[start:]


async def publish_keyed(tx: SqlTransaction, entries: Sequence[Entry]) -> list[Published]:
    ids = [id for chunk in split_into_packets(entries) for id in await write_messages(tx, chunk)]
    taken = await heads_of(tx, entries)
    for id, entry in zip(ids, entries, strict=True):
        await place_keyed(tx, entry, ticket_of(entry, id, tx.now), taken)
    return [Published(id) for id in ids]


async def write_messages(tx: SqlTransaction, entries: Sequence[Entry]) -> list[int]:
    rows = to_tuples([message_row(entry, tx.now) for entry in entries])
    return sorted(id for (id,) in await tx.all("publish_rows", rows=rows))


def message_row(entry: Entry, now: Moment) -> tuple[Any, ...]:
    due = compute_due_at(entry, now)
    return (
        entry.queue_id, entry.type, entry.priority, compute_rank(entry, now, due), now,
        due if due > now else None, compute_expires_at(entry, now), entry.body, entry.meta,
    )  # fmt: skip


async def heads_of(tx: SqlTransaction, entries: Sequence[Entry]) -> set[tuple[int, str]]:
    """Returns the entries' ordering keys that another message holds."""
    asked: dict[int, set[str]] = {}
    for entry in entries:
        if entry.ordering_key is not None:
            asked.setdefault(entry.queue_id, set()).add(entry.ordering_key)
    return {
        (queue_id, key)
        for queue_id, keys in asked.items()
        for (key,) in await tx.all("heads", queue_id=queue_id, keys=sorted(keys))
    }


async def place_keyed(
    tx: SqlTransaction, entry: Entry, ticket: Ticket, taken: set[tuple[int, str]]
) -> None:
    due, key = compute_due_at(entry, tx.now), entry.ordering_key
    if entry.flags & Flag.HELD:
        await tx.put_scheduled(ticket, due if due > tx.now else NEVER)
    elif due > tx.now:
        await tx.put_scheduled(ticket, due, key)
    elif key is not None and (entry.queue_id, key) in taken:
        await tx.put_scheduled(ticket, NEVER, key, ticket.id)
    else:
        if key is not None:
            await tx.run("take_head", queue_id=entry.queue_id, key=key, id=ticket.id)
            taken.add((entry.queue_id, key))
        await tx.put_ready(ticket)


async def complete_keyed(tx: SqlTransaction, items: Sequence[Completion]) -> list[Any]:
    """Returns the locks completed. Skips a lease whose successor is locked."""
    leases = {row[2]: row for row in await tx.all("settle_look", ids=list_ids(items))}
    held = [item for item in items if is_held(item, leases.get(item.id))]
    lines = {row[0]: row for row in await tx.all("lines_of_heads", ids=list_ids(held))}
    called = await call_successors(tx, [row[3] for row in lines.values() if row[3] is not None])
    ended = [
        item
        for item in held
        if item.id not in lines or lines[item.id][3] is None or lines[item.id][3] in called
    ]
    if ended:
        await tx.run("leave_leases_of", array=to_json_array(item.id for item in ended))
    for item in ended:
        await end_keyed(tx, item, leases[item.id])
        await pass_on(tx, lines.get(item.id), called)
    return [(item.id, item.fence) for item in ended]


def list_ids(items: Iterable[Completion]) -> list[int]:
    return sorted(item.id for item in items)


def is_held(item: Completion, row: Any) -> bool:
    return row is not None and row[9] == item.fence and not row[7] & Flag.CALLBACK


async def call_successors(tx: SqlTransaction, ids: list[int]) -> dict[int, Ticket]:
    """Returns the successors' tickets that no other transaction has locked."""
    if not ids:
        return {}
    rows = await tx.all("call_from_line", ids=sorted(ids))
    if rows:
        await tx.run("leave_scheduled", array=to_json_array(row[2] for row in rows))
    return {row[2]: Ticket(*row) for row in rows}


async def end_keyed(tx: SqlTransaction, item: Completion, row: Any) -> None:
    held = Ticket(*row[:8])
    ticket = held._replace(attempts=held.attempts + 1)
    delivery = DeliveryRow(*row[8:11])
    await tx.record(ticket, Verb.COMPLETE, State.COMPLETED, delivery=delivery)
    await keep_result(tx, item)
    if held.flags & Flag.UNIQUE:
        await tx.run("unique_free", id=item.id)
    if held.flags & Flag.AWAITED:
        await tx.run("nudge_awaiting", id=item.id)
        await tx.run("keep_nothing", ids=tx.encode_ids([item.id]), now=tx.now)


async def pass_on(tx: SqlTransaction, line: Any, called: dict[int, Ticket]) -> None:
    if line is None:
        return
    id, queue_id, key, next_id = line
    await tx.run("free_head", id=id)
    if next_id is not None:
        await tx.run("take_head", queue_id=queue_id, key=key, id=next_id)
        await tx.put_ready(called[next_id])
