"""Operator verbs on messages: cancel, redrive, purge."""

from collections.abc import Collection, Sequence
from typing import Any

from penstock.model.message import NEVER, Flag, Moment, State, Verb
from penstock.model.store_types import MISSING, Answer, AnswerKind
from penstock.stores.sql import ordering_keys
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.records import make_message
from penstock.stores.sql.settle import BUSY, end, find_state
from penstock.stores.sql.transaction import DeliveryRow, SqlTransaction, Ticket

HELD_DEAD = Answer(AnswerKind.BUSY, State.DEAD)
REDRIVEN = Answer(AnswerKind.DONE, State.READY)
PURGED = Answer(AnswerKind.DONE, State.CANCELLED)


async def cancel(tx: SqlTransaction, ids: Sequence[int], force: bool) -> list[Answer]:
    return [await cancel_one(tx, id, force) for id in ids]


async def cancel_one(tx: SqlTransaction, id: int, force: bool) -> Answer:
    """Answers BUSY if the message is locked, or moved after it was read."""
    held = await tx.one("lease_fence", id=id)
    if held is not None:
        answer = await cancel_claimed(tx, id, held[0], force)
    else:
        answer = await cancel_waiting(tx, id)
    return BUSY if answer is None else answer


async def cancel_waiting(tx: SqlTransaction, id: int) -> Answer | None:
    state = await find_state(tx, id)
    if state is None:
        return MISSING
    if state not in (State.READY, State.SCHEDULED):
        return Answer(AnswerKind.INVALID, state)
    ticket = await take(tx, id, state)
    if ticket is None:
        return None
    await end(tx, ticket, Verb.CANCEL, State.CANCELLED, "requested")
    return Answer(AnswerKind.DONE, State.CANCELLED)


async def cancel_claimed(tx: SqlTransaction, id: int, fence: int, force: bool) -> Answer | None:
    if not force:
        requested = await tx.run("request_cancel", id=id, fence=fence)
        done = Answer(AnswerKind.DONE, State.CLAIMED, cancel_requested=True)
        return done if requested else None
    row = await tx.one("take_lease", id=id, fence=fence)
    if row is None:
        return None
    ticket = Ticket(*row[:8])
    await tx.record(
        ticket, Verb.CANCEL, State.CANCELLED, "forced", delivery=DeliveryRow(*row[8:11])
    )
    await finalize(tx, id, ticket.flags, State.CANCELLED, "forced")
    return Answer(AnswerKind.DONE, State.CANCELLED)


async def take(tx: SqlTransaction, id: int, state: State) -> Ticket | None:
    """Takes a ticket from ready or scheduled. Aging may have changed its rank."""
    if state is State.SCHEDULED:
        row = await tx.one("take_scheduled", id=id)
    else:
        message = await tx.one("message", id=id)
        queue_id, rank = message[1], message[-1]
        row = await tx.one("take_ready", queue_id=queue_id, rank=rank, id=id)
        row = row or await tx.one("scan_ready", queue_id=queue_id, id=id)
    return None if row is None else Ticket(*row)


async def redrive(tx: SqlTransaction, ids: Sequence[int]) -> list[Answer]:
    done = await redrive_set(tx, ids)
    return [REDRIVEN if discard(done, id) else await redrive_one(tx, id) for id in ids]


async def redrive_set(
    tx: SqlTransaction, ids: Sequence[int], reason: str | None = None, as_of: int | None = None
) -> set[int]:
    """Makes dead tickets without an ordering key ready. Returns their ids."""
    taken = await lock_dead_set(tx, ids, Flag.KEYED, as_of)
    if taken:
        encoded = tx.encode_ids(list(taken))
        await record_dead_set(tx, encoded, Verb.REDRIVE, State.READY, reason)
        await tx.run("redrive_dead_set", ids=encoded)
        await tx.run("drop_dead_set", ids=encoded)
        tx.woken.update(taken.values())
    return set(taken)


async def lock_dead_set(
    tx: SqlTransaction, ids: Sequence[int], mask: int, as_of: int | None
) -> dict[int, int]:
    """Returns the queues of the tickets by id.

    Leaves out locked ones, those with a flag of the mask and those that changed after `as_of`.
    """
    rows = await tx.all("lock_dead_set", ids=tx.encode_ids(ids), mask=mask) if ids else []
    found = {id: queue_id for id, queue_id in rows}
    if found and as_of is not None:
        encoded = tx.encode_ids(list(found))
        for (id,) in await tx.all("changed_since", ids=encoded, as_of=as_of):
            found.pop(id, None)
    return found


async def record_dead_set(
    tx: SqlTransaction,
    encoded: Any,
    verb: Verb,
    state: State,
    reason: str | None,
    error: str | None = None,
) -> None:
    """Writes a row of history for each; the counters are kept if the message ends."""
    await tx.run(
        "record_dead_set",
        ids=encoded,
        verb=verb.value,
        state=state.value,
        reason=reason,
        error=error,
        at=tx.now,
        final=state.final,
    )


def discard(ids: set[int], id: int) -> bool:
    """Returns True the first time, so that a repeated id is explained like any other."""
    if id not in ids:
        return False
    ids.remove(id)
    return True


async def redrive_one(tx: SqlTransaction, id: int) -> Answer:
    row = await take_dead(tx, id)
    if row is None:
        return await explain_not_dead(tx, id)
    await put_back(tx, row)
    return REDRIVEN


async def put_back(tx: SqlTransaction, row: Any, reason: str | None = None) -> None:
    """Makes a dead ticket ready, with its counters reset; a keyed one joins the line of its key."""
    message = await tx.one("message", id=row[2])
    expires_at = message[8] or NEVER
    ticket = Ticket(*row)._replace(attempts=0, deliveries=0, expires_at=expires_at)
    keyed = bool(ticket.flags & Flag.KEYED)
    await tx.record(ticket, Verb.REDRIVE, State.SCHEDULED if keyed else State.READY, reason)
    if keyed:
        key = make_message(message[:7]).meta.ordering_key or ""
        await ordering_keys.get_in_line(tx, ticket, key, await ordering_keys.find_end_of_line(tx))
    else:
        await tx.put_ready(ticket)


async def take_dead(tx: SqlTransaction, id: int) -> Any:
    """Returns None if it is not dead or is locked by another transaction; does not wait."""
    if await tx.one("lock_dead", id=id) is None:
        return None
    return await tx.one("take_dead", id=id)


async def explain_not_dead(tx: SqlTransaction, id: int) -> Answer:
    held = await tx.one("lease_fence", id=id)
    state = State.CLAIMED if held else await find_state(tx, id)
    if state is State.DEAD:
        return HELD_DEAD
    return MISSING if state is None else Answer(AnswerKind.INVALID, state)


async def purge_dead(tx: SqlTransaction, ids: Sequence[int]) -> list[Answer]:
    done = await purge_set(tx, ids)
    return [PURGED if discard(done, id) else await purge_one(tx, id) for id in ids]


async def purge_set(
    tx: SqlTransaction, ids: Sequence[int], error: str | None = None, as_of: int | None = None
) -> set[int]:
    """Ends dead messages whose end concerns nothing else. Returns their ids."""
    taken = await lock_dead_set(tx, ids, Flag.ENDING, as_of)
    if taken:
        encoded = tx.encode_ids(list(taken))
        await record_dead_set(tx, encoded, Verb.CANCEL, State.CANCELLED, "purged", error)
        await tx.run("drop_dead_set", ids=encoded)
    return set(taken)


async def purge_one(tx: SqlTransaction, id: int) -> Answer:
    row = await take_dead(tx, id)
    if row is None:
        return await explain_not_dead(tx, id)
    await end(tx, Ticket(*row), Verb.CANCEL, State.CANCELLED, "purged")
    return PURGED


async def purge(tx: SqlTransaction, queue_id: int, places: Collection[str], limit: int) -> int:
    tickets: list[Ticket] = []
    for place in places:
        tickets += await take_some(tx, queue_id, place, limit - len(tickets))
    # After taking all: ending one may free a key and so move another ticket.
    for ticket in tickets:
        await end(tx, ticket, Verb.CANCEL, State.CANCELLED, "purged")
    return len(tickets)


async def expire_dead(tx: SqlTransaction, queue_id: int, before: Moment, limit: int) -> int:
    rows = await tx.all("take_old_dead", queue_id=queue_id, before=before, limit=limit)
    for row in rows:
        await end(tx, Ticket(*row), Verb.EXPIRE, State.EXPIRED, "dead_retention")
    return len(rows)


async def take_some(tx: SqlTransaction, queue_id: int, place: str, limit: int) -> list[Ticket]:
    rows = await tx.all(f"take_some_{place}", queue_id=queue_id, limit=limit)
    return [Ticket(*row) for row in rows]
