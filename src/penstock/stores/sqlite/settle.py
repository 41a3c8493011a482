"""Ends deliveries: complete, extend, marks, and the moves the rules decided."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.message import Flag, State, Verb
from penstock.stores.sqlite import keys
from penstock.stores.sqlite.rows import meta_of
from penstock.stores.sqlite.transaction import Delivery, Ticket, Transaction
from penstock.ticket import (
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
    lasting,
)

encode = msgspec.json.Encoder().encode
LOST = Answer(AnswerKind.LOST)
CHANGED = Answer(AnswerKind.CHANGED, State.CLAIMED)


def complete(tx: Transaction, items: Sequence[Completion]) -> list[Answer]:
    """As sets: history first, then the leases it was taken from."""
    wanted = {(item.id, item.fence): item for item in reversed(items)}
    fences = dict(wanted.keys())
    if len(fences) < len(wanted):
        # One id under two fences: each for itself.
        return [answer for item in items for answer in complete(tx, [item])]
    locks = encode(fences).decode()
    flagged = tx.all("flagged", (locks,))
    cursor = tx.run("complete_history", (tx.now, locks))
    count = cursor.rowcount
    if count:
        tx.run("complete_remove", (locks,))
        for id, _, flags in flagged:
            keys.free(tx, id, flags)
    if count == len(items):
        keep_results(tx, items)
        return [DONE] * count
    last = cursor.lastrowid or 0
    done = set(tx.all("history_tail", (last - count,))) if count else set()
    keep_results(tx, [item for lock, item in wanted.items() if lock in done])
    return [completed(tx, item, done) for item in items]


def completed(tx: Transaction, item: Completion, done: set[tuple[int, int]]) -> Answer:
    """DONE once; a second one for the same lock in this batch is already done."""
    lock = (item.id, item.fence)
    if lock in done:
        done.discard(lock)
        return DONE
    return explain(tx, item.id, item.fence, Verb.COMPLETE)


def keep_results(tx: Transaction, items: Iterable[Completion]) -> None:
    for item in items:
        if item.result is not None:
            tx.run("keep_result", {"id": item.id, "now": tx.now, "body": item.result})


def extend(tx: Transaction, items: Sequence[Extension]) -> list[Answer]:
    return [extend_one(tx, item) for item in items]


def extend_one(tx: Transaction, item: Extension) -> Answer:
    until = tx.now + int(item.lease * 1_000_000)
    terms = {"until": until, "now": tx.now, "id": item.id, "fence": item.fence}
    row = tx.one("extend", terms)
    if row is None:
        return explain(tx, item.id, item.fence, None)
    lease_until, flags = row
    requested = bool(flags & Flag.CANCEL_REQUESTED)
    return Answer(AnswerKind.DONE, State.CLAIMED, lease_until, requested)


def mark(tx: Transaction, items: Sequence[Mark]) -> list[Answer]:
    return [mark_one(tx, item) for item in items]


def mark_one(tx: Transaction, item: Mark) -> Answer:
    if item.begin:
        changed = tx.run("begin", (item.id, item.fence)).rowcount
    else:
        changed = tx.run("progress", (item.percent, item.note, item.id, item.fence)).rowcount
    if changed:
        return DONE
    answer = explain(tx, item.id, item.fence, None)
    # It is held, but not a suspect: there is nothing to begin.
    return Answer(AnswerKind.INVALID, State.CLAIMED) if answer is CHANGED else answer


def leases(tx: Transaction, locks: Sequence[Lock]) -> list[Lease | None]:
    return [lease(tx, lock.id, lock.fence) for lock in locks]


def lease(tx: Transaction, id: int, fence: int) -> Lease | None:
    row = tx.one("lease_read", (id, fence))
    if row is None:
        return None
    (
        _, _, queue_id, attempts, deliveries, flags, claimed_at, lease_until, length, meta,
        dead_reason, parked, first_claimed_at,
    ) = row  # fmt: skip
    return Lease(
        id, fence, queue_id, attempts, deliveries, flags, claimed_at, lease_until,
        length / 1_000_000, tx.now, meta_of(meta), first_claimed_at or claimed_at, parked,
        dead_reason,
    )  # fmt: skip


def expired_leases(tx: Transaction, limit: int) -> Sweep:
    found = [lease(tx, *row) for row in tx.all("lease_expired", (tx.now, limit))]
    return Sweep(tx.now, [each for each in found if each is not None])


def settle(tx: Transaction, moves: Sequence[Move]) -> list[Answer]:
    return [settle_one(tx, move) for move in moves]


def settle_one(tx: Transaction, move: Move) -> Answer:
    guard = {
        "id": move.id,
        "fence": move.fence,
        "flags": move.seen_flags,
        "expired_by": 2**62 if move.expired_by is None else move.expired_by,
    }
    row = tx.one("settle", guard)
    if row is None:
        return explain(tx, move.id, move.fence, move.verb)
    apply(tx, move, row)
    return Answer(AnswerKind.DONE, move.state)


def apply(tx: Transaction, move: Move, row: Any) -> None:
    """The ticket leaves its lease for where the rules sent it."""
    held, delivery, (dead_at, dead_error) = Ticket(*row[:8]), Delivery(*row[8:11]), row[11:]
    ticket = held._replace(
        attempts=move.attempts, deliveries=move.deliveries, flags=lasting(held.flags)
    )
    due_at = tx.now + int(move.delay * 1_000_000) if move.state is State.SCHEDULED else None
    if move.rank_by_due:
        ticket = ticket._replace(rank=(due_at or tx.now) // 1000)
    match move.state:
        case State.READY:
            tx.put_ready(ticket)
        case State.SCHEDULED:
            tx.put_scheduled(ticket, due_at or tx.now)
        case State.DEAD:
            error = dead_error if move.error is None else move.error
            tx.put_dead(ticket, dead_at or tx.now, move.reason, error)
    tx.record(
        ticket, move.verb, move.state, move.reason,
        error=move.error, delivery=delivery, due_at=due_at,
    )  # fmt: skip
    if move.frees:
        keys.free(tx, ticket.id, ticket.flags)


def explain_all(tx: Transaction, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
    return [explain(tx, lock.id, lock.fence, verb) for lock, verb in zip(locks, verbs, strict=True)]


def explain(tx: Transaction, id: int, fence: int, verb: Verb | None) -> Answer:
    """Why a verb with this fence changed nothing."""
    story = tx.all("story_of_fence", {"id": id, "fence": fence})
    for done, state in story:
        if done == verb:
            return Answer(AnswerKind.ALREADY, State(state))
    if story:
        return LOST
    held = tx.one("lease_fence", (id,))
    if held is not None:
        return CHANGED if held[0] == fence else LOST
    state = state_of(tx, id)
    return MISSING if state is None else Answer(AnswerKind.INVALID, state)


def state_of(tx: Transaction, id: int) -> State | None:
    """Where a message is that nobody holds. What is nowhere else is ready."""
    if (ended := tx.one("ended", (id,))) is not None:
        return State(ended[0])
    if tx.one("where_scheduled", (id,)) is not None:
        return State.SCHEDULED
    if tx.one("where_dead", (id,)) is not None:
        return State.DEAD
    return None if tx.one("message", (id,)) is None else State.READY
