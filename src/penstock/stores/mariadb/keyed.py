"""Publishes and completes batches with ordering keys; the caller holds the keys' locks."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.model.message import NEVER, Flag, Moment, State, Verb
from penstock.model.store_types import Completion, Entry, Published
from penstock.stores.mariadb.publish import split_into_packets
from penstock.stores.mariadb.statement import to_json_array, to_tuples
from penstock.stores.sql.publish import compute_due_at, compute_expires_at, compute_rank, ticket_of
from penstock.stores.sql.settle import keep_result
from penstock.stores.sql.transaction import DeliveryRow, SqlTransaction, Ticket


async def publish(tx: SqlTransaction, entries: Sequence[Entry]) -> list[Published]:
    ids = [id for chunk in split_into_packets(entries) for id in await write_messages(tx, chunk)]
    taken = await heads_of(tx, entries)
    for id, entry in zip(ids, entries, strict=True):
        await place(tx, entry, ticket_of(entry, id, tx.now), taken)
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


async def place(
    tx: SqlTransaction, entry: Entry, ticket: Ticket, taken: set[tuple[int, str]]
) -> None:
    due, key = compute_due_at(entry, tx.now), entry.ordering_key
    if due > tx.now:
        await tx.put_scheduled(ticket, due, key)
    elif key is not None and (entry.queue_id, key) in taken:
        await tx.put_scheduled(ticket, NEVER, key, ticket.id)
    else:
        if key is not None:
            await tx.run("take_head", queue_id=entry.queue_id, key=key, id=ticket.id)
            taken.add((entry.queue_id, key))
        await tx.put_ready(ticket)


async def complete(tx: SqlTransaction, items: Sequence[Completion]) -> list[Any]:
    """Returns the locks completed. Skips a lease whose successor is locked."""
    leases = {row[2]: row for row in await tx.all("settle_look", ids=listed(items))}
    held = [item for item in items if fits(item, leases.get(item.id))]
    lines = {row[0]: row for row in await tx.all("lines_of_heads", ids=listed(held))}
    called = await call(tx, [row[3] for row in lines.values() if row[3] is not None])
    ended = [
        item
        for item in held
        if item.id not in lines or lines[item.id][3] is None or lines[item.id][3] in called
    ]
    if ended:
        await tx.run("leave_leases_of", array=to_json_array(item.id for item in ended))
    for item in ended:
        await end(tx, item, leases[item.id])
        await pass_on(tx, lines.get(item.id), called)
    return [(item.id, item.fence) for item in ended]


def listed(items: Iterable[Completion]) -> list[int]:
    return sorted(item.id for item in items)


def fits(item: Completion, row: Any) -> bool:
    return row is not None and row[9] == item.fence and not row[7] & Flag.CALLBACK


async def call(tx: SqlTransaction, ids: list[int]) -> dict[int, Ticket]:
    """Returns the successors' tickets that no other transaction has locked."""
    if not ids:
        return {}
    rows = await tx.all("call_from_line", ids=sorted(ids))
    if rows:
        await tx.run("leave_scheduled", array=to_json_array(row[2] for row in rows))
    return {row[2]: Ticket(*row) for row in rows}


async def end(tx: SqlTransaction, item: Completion, row: Any) -> None:
    held = Ticket(*row[:8])
    ticket = held._replace(attempts=held.attempts + 1)
    delivery = DeliveryRow(*row[8:11])
    await tx.record(ticket, Verb.COMPLETE, State.COMPLETED, delivery=delivery)
    await keep_result(tx, item)
    if held.flags & Flag.UNIQUE:
        await tx.run("unique_free", id=item.id)


async def pass_on(tx: SqlTransaction, line: Any, called: dict[int, Ticket]) -> None:
    if line is None:
        return
    id, queue_id, key, next_id = line
    await tx.run("free_head", id=id)
    if next_id is not None:
        await tx.run("take_head", queue_id=queue_id, key=key, id=next_id)
        await tx.put_ready(called[next_id])
