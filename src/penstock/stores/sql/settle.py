"""Settles deliveries one by one and explains refused ones."""

from collections.abc import Sequence
from typing import Any

from penstock.model.message import Flag, State, Verb, keep_lasting_flags
from penstock.model.store_types import (
    DONE,
    MISSING,
    Answer,
    AnswerKind,
    Completion,
    Extension,
    Lease,
    Lock,
    Mark,
    Move,
    Sweep,
)
from penstock.stores.sql.dedup import record_seen
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.records import decode_meta
from penstock.stores.sql.results import keep_result
from penstock.stores.sql.transaction import DeliveryRow, SqlTransaction, Ticket

LOST = Answer(AnswerKind.LOST)
CHANGED = Answer(AnswerKind.CHANGED, State.CLAIMED)
BUSY = Answer(AnswerKind.BUSY, State.CLAIMED)


async def end(
    tx: SqlTransaction, ticket: Ticket, verb: Verb, state: State, reason: str | None = None
) -> None:
    """Ends a ticket that has no lease."""
    await tx.record(ticket, verb, state, reason)
    await finalize(tx, ticket.id, ticket.flags, state, reason)


async def complete_one(tx: SqlTransaction, item: Completion) -> Answer:
    row = await tx.one("take_lease", id=item.id, fence=item.fence)
    if row is None:
        return await explain(tx, item.id, item.fence, Verb.COMPLETE)
    held = Ticket(*row[:8])
    ticket = held._replace(attempts=held.attempts + 1)
    delivery = DeliveryRow(*row[8:11])
    await tx.record(ticket, Verb.COMPLETE, State.COMPLETED, delivery=delivery)
    await keep_result(tx, item)
    await record_seen(tx, item, ticket.queue_id)
    await finalize(tx, ticket.id, ticket.flags, State.COMPLETED)
    return DONE


async def extend_one(tx: SqlTransaction, item: Extension) -> Answer:
    until = tx.now + int(item.lease * 1_000_000)
    row = await tx.one("extend", until=until, now=tx.now, id=item.id, fence=item.fence)
    if row is None:
        return await explain(tx, item.id, item.fence, None)
    return answer_extended(*row)


def answer_extended(lease_until: int, flags: int) -> Answer:
    requested = bool(flags & Flag.CANCEL_REQUESTED)
    return Answer(AnswerKind.DONE, State.CLAIMED, lease_until, requested)


async def mark(tx: SqlTransaction, items: Sequence[Mark]) -> list[Answer]:
    return [await mark_one(tx, item) for item in items]


async def mark_one(tx: SqlTransaction, item: Mark) -> Answer:
    if item.begin:
        changed = await tx.run("begin", id=item.id, fence=item.fence, now=tx.now)
    else:
        changed = await tx.run(
            "progress", percent=item.percent, note=item.note, id=item.id, fence=item.fence,
            now=tx.now,
        )  # fmt: skip
    if changed:
        return DONE
    answer = await explain(tx, item.id, item.fence, None)
    return BUSY if answer is CHANGED else answer


async def leases(tx: SqlTransaction, locks: Sequence[Lock]) -> list[Lease | None]:
    return [await get_lease(tx, lock.id, lock.fence) for lock in locks]


async def get_lease(tx: SqlTransaction, id: int, fence: int) -> Lease | None:
    row = await tx.one("lease_read", id=id, fence=fence)
    return None if row is None else make_lease(row, tx.now)


def make_lease(row: Any, now: int) -> Lease:
    (
        id, fence, queue_id, attempts, deliveries, flags, claimed_at, lease_until, length, meta,
        dead_reason, parked, first_claimed_at,
    ) = row  # fmt: skip
    return Lease(
        id, fence, queue_id, attempts, deliveries, flags, claimed_at, lease_until,
        length / 1_000_000, now, decode_meta(meta), first_claimed_at or claimed_at, parked,
        dead_reason,
    )  # fmt: skip


async def expired_leases(tx: SqlTransaction, limit: int) -> Sweep:
    rows = await tx.all("lease_expired", now=tx.now, limit=limit)
    found = [await get_lease(tx, *row) for row in rows]
    return Sweep(tx.now, [each for each in found if each is not None])


async def settle(tx: SqlTransaction, moves: Sequence[Move]) -> list[Answer]:
    return [await settle_one(tx, move) for move in moves]


async def settle_one(tx: SqlTransaction, move: Move) -> Answer:
    row = await tx.one(
        "settle",
        id=move.id,
        fence=move.fence,
        flags=move.seen_flags,
        expired_by=2**62 if move.expired_by is None else move.expired_by,
    )
    if row is None:
        return await explain(tx, move.id, move.fence, move.verb)
    await apply(tx, move, row)
    return Answer(AnswerKind.DONE, move.state)


async def apply(tx: SqlTransaction, move: Move, row: Any) -> None:
    """Moves the ticket from its lease to the state the rules decided."""
    held, delivery, (dead_at, dead_error) = Ticket(*row[:8]), DeliveryRow(*row[8:11]), row[11:]
    ticket = held._replace(
        attempts=move.attempts, deliveries=move.deliveries, flags=keep_lasting_flags(held.flags)
    )
    due_at = tx.now + int(move.delay * 1_000_000) if move.state is State.SCHEDULED else None
    if move.rank_by_due:
        ticket = ticket._replace(rank=(due_at or tx.now) // 1000)
    match move.state:
        case State.READY:
            await tx.put_ready(ticket)
        case State.SCHEDULED:
            await tx.put_scheduled(ticket, due_at or tx.now)
        case State.DEAD:
            error = dead_error if move.error is None else move.error
            await tx.put_dead(ticket, dead_at or tx.now, move.reason, error)
    await tx.record(
        ticket, move.verb, move.state, move.reason,
        error=move.error, delivery=delivery, due_at=due_at, traceback=move.traceback,
    )  # fmt: skip
    if move.frees:
        await finalize(
            tx,
            ticket.id,
            keep_lasting_flags(clear_announced_flag(held.flags, move.state)),
            move.state,
            move.reason,
        )


def clear_announced_flag(flags: int, state: State) -> int:
    """Clears the flag so that a dead letter that stays dead is not announced twice."""
    stays = flags & Flag.FROM_DEAD and state is State.DEAD
    return flags & ~Flag.CALLBACK if stays else flags


async def explain_all(
    tx: SqlTransaction, locks: Sequence[Lock], verbs: Sequence[Verb]
) -> list[Answer]:
    pairs = zip(locks, verbs, strict=True)
    return [await explain(tx, lock.id, lock.fence, verb) for lock, verb in pairs]


async def explain(tx: SqlTransaction, id: int, fence: int, verb: Verb | None) -> Answer:
    """Explains why a verb with this fence changed nothing."""
    # Read the lease before history: what leaves it in between is in history by then.
    held = await tx.one("lease_fence", id=id)
    if held is not None and held[0] == fence:
        return BUSY if held[1] else CHANGED
    story = await tx.all("story_of_fence", id=id, fence=fence)
    for done, state in story:
        if done == verb:
            return Answer(AnswerKind.ALREADY, State(state))
    if story or held is not None:
        return LOST
    place = await find_state(tx, id)
    return MISSING if place is None else Answer(AnswerKind.INVALID, place)


async def explain_refusal(tx: SqlTransaction, item: Extension) -> Answer:
    """Explains why an extension, which writes no history row, changed nothing."""
    return await explain(tx, item.id, item.fence, None)


async def find_state(tx: SqlTransaction, id: int) -> State | None:
    """Returns the state of a message without a lease; ready if it is nowhere else."""
    if (ended := await tx.one("ended", id=id)) is not None:
        return State(ended[0])
    if await tx.one("where_scheduled", id=id) is not None:
        return State.SCHEDULED
    if await tx.one("where_dead", id=id) is not None:
        return State.DEAD
    return None if await tx.one("message", id=id) is None else State.READY
