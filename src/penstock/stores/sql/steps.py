"""Stores steps under the fence of their delivery, and signals for waiting messages."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.errors import ChildRefused, IdempotencyConflict, InvalidState, NotFound, SignalsFull
from penstock.model.message import Flag, Moment, State
from penstock.model.store_types import AnswerKind, Entry, Published
from penstock.model.waiting import (
    PastWait,
    SignalAnswer,
    SignalDraft,
    StepLog,
    StepRecord,
    StepSave,
    StepSaved,
    StoredSignal,
    WaitFacts,
)
from penstock.stores.sql import documents, resume
from penstock.stores.sql.settle import explain, find_state
from penstock.stores.sql.transaction import SqlTransaction, Ticket

MAX_SIGNALS = 1_000
RECENT_WAITS = 10
RECEIVED = "received"
Publish: TypeAlias = Callable[[Any, Sequence[Entry]], Awaitable[list[Published]]]
encode = msgspec.json.Encoder().encode


async def save_steps(
    tx: SqlTransaction, items: Sequence[StepSave], publish: Publish
) -> list[StepSaved]:
    return [await save_step(tx, item, publish) for item in items]


async def save_step(tx: SqlTransaction, item: StepSave, publish: Publish) -> StepSaved:
    """Stores a step if this fence holds the lease. A step that is done stays as it is."""
    row = await tx.one("lease_shared", id=item.id, fence=item.fence)
    if row is None:
        # Any verb: a step writes no history row.
        answer = await explain(tx, item.id, item.fence, None)
        changed = answer.kind is AnswerKind.CHANGED
        return StepSaved(AnswerKind.BUSY if changed else answer.kind)
    (flags,) = row
    if flags & Flag.FROM_DEAD:
        return StepSaved(AnswerKind.INVALID)
    found = await get_step(tx, item.id, item.step.name, item.step.key)
    if found is not None and found.done:
        return StepSaved(AnswerKind.ALREADY, found)
    # First: without the flag, later runs would not read the step.
    if not flags & Flag.STEPS and not await tx.run("flag_steps", id=item.id, fence=item.fence):
        return StepSaved(AnswerKind.BUSY)
    step = replace(item.step, position=found.position if found else item.step.position)
    if item.entry is not None:
        (outcome,) = await publish(tx, [item.entry])
        if outcome.code:
            raise ChildRefused.at(0, outcome.code)
        step = replace(step, body=encode(outcome.id))
    if item.consumes is not None:
        await tx.run("signal_consume", signal_id=item.consumes, id=item.id)
    return StepSaved(AnswerKind.DONE, await put_step(tx, item.id, item.fence, step))


async def save_step_inside(tx: SqlTransaction, item: StepSave) -> StepSaved:
    """Stores a step in the caller's transaction.

    The lease is locked until that ends, but not changed: the flag for steps is not set, so that
    renewals go on. Runs read the records of such steps in any case.
    """
    if (row := await tx.one("lease_shared", id=item.id, fence=item.fence)) is None:
        return StepSaved(AnswerKind.LOST)
    if row[0] & Flag.FROM_DEAD:
        return StepSaved(AnswerKind.INVALID)
    found = await get_step(tx, item.id, item.step.name, item.step.key)
    if found is not None:
        return StepSaved(AnswerKind.ALREADY, found)
    return StepSaved(AnswerKind.DONE, await put_step(tx, item.id, item.fence, item.step))


async def put_step(tx: SqlTransaction, id: int, fence: int, step: StepRecord) -> StepRecord:
    stored = replace(step, at=tx.now, fence=fence)
    await tx.run("step_save", id=id, **msgspec.structs.asdict(stored))
    return stored


async def get_step(tx: SqlTransaction, id: int, name: str, key: str) -> StepRecord | None:
    row = await tx.one("step", id=id, name=name, key=key)
    return None if row is None else make_step(row)


def make_step(row: Sequence[Any]) -> StepRecord:
    name, key, kind, position, body, done, due_at, at, fence = row
    return StepRecord(
        name=name, key=key, kind=kind, position=position, body=bytes(body), done=bool(done),
        due_at=due_at, at=at, fence=fence,
    )  # fmt: skip


async def steps(tx: SqlTransaction, id: int) -> StepLog:
    return StepLog([make_step(row) for row in await tx.all("steps", id=id)], tx.now)


def make_log(id: int, rows: Sequence[Any], now: Moment) -> StepLog:
    """Makes the log of rows that are steps, or signals of the kind RECEIVED."""
    log = StepLog([], now)
    for row in rows:
        if row[2] != RECEIVED:
            log.steps.append(make_step(row))
            continue
        name, key, _, position, body, _, _, at, _ = row
        log.signals.append(
            StoredSignal(id=position, message_id=id, name=name, key=key, at=at, body=bytes(body))
        )
    return log


async def child_records(tx: SqlTransaction, ids: Sequence[int]) -> list[StepRecord]:
    return [make_step(row) for row in await tx.all("child_records", ids=tx.encode_ids(sorted(ids)))]


async def forget_steps(tx: SqlTransaction, id: int, position: int) -> list[StepRecord]:
    """Deletes the records from a position on. The message must be dead."""
    if await tx.one("lock_dead", id=id) is None:
        return []
    gone = [step for step in (await steps(tx, id)).steps if step.position >= position]
    for step in gone:
        await tx.run("step_delete", id=id, name=step.name, key=step.key)
    return gone


async def wait_facts(tx: SqlTransaction, id: int, fence: int) -> WaitFacts:
    position, at = await tx.one("last_redrive", id=id) or (0, 0)
    waits, count, recorded = await tx.one(
        "wait_counts", id=id, fence=fence, position=position, at=at
    )
    recent = await tx.all("recent_waits", id=id, limit=RECENT_WAITS)
    return WaitFacts(waits, count, bool(recorded), tuple(PastWait(*row) for row in recent))


async def signal(tx: SqlTransaction, draft: SignalDraft) -> SignalAnswer:
    """Stores the signal and resumes its message, or asks for a look at it, in one transaction."""
    from penstock.rules.live_events import make_signal_document

    state = await find_place(tx, draft.id)
    if state is None or state.final:
        return SignalAnswer(state=state, code=(InvalidState if state else NotFound).code)
    await tx.lock(("signal", 0, str(draft.id)))
    if draft.key is not None:
        seen = await tx.one("signal_of_key", id=draft.id, name=draft.name, key=draft.key)
        if seen is not None:
            same = bytes(seen[1]) == draft.body
            return SignalAnswer(seen[0], True, None if same else IdempotencyConflict.code, state)
    if (await tx.one("signal_count", id=draft.id))[0] >= MAX_SIGNALS:
        return SignalAnswer(code=SignalsFull.code, state=state)
    row = await tx.one(
        "signal_add", id=draft.id, name=draft.name, key=draft.key, at=tx.now, body=draft.body
    )
    if draft.event:
        await documents.save_one(tx, make_signal_document(tx.now, row[0], draft.event))
    resumed = await resume_signalled(tx, draft)
    if not resumed:
        await tx.run("nudge_add", held_id=draft.id)
    return SignalAnswer(row[0], state=state, resumed=resumed)


async def resume_signalled(tx: SqlTransaction, draft: SignalDraft) -> bool:
    """Resumes a message at once that waits for this signal and for nothing else."""
    holds = await tx.all("holds_of", ids=tx.encode_ids([draft.id]))
    if [(row[4], row[5]) for row in holds] != [("signal", draft.name)]:
        return False
    tickets = [Ticket(*row) for row in await tx.all("held_tickets", ids=tx.encode_ids([draft.id]))]
    if any(ticket.flags & Flag.KEYED for ticket in tickets):
        return False
    await resume.resume_tickets(tx, tickets)
    return bool(tickets)


async def find_place(tx: SqlTransaction, id: int) -> State | None:
    """Returns the state of a message. One that gets a signal most likely waits for it."""
    if await tx.one("where_scheduled", id=id) is not None:
        return State.SCHEDULED
    return State.CLAIMED if await tx.one("lease_fence", id=id) else await find_state(tx, id)


async def signals(tx: SqlTransaction, id: int) -> list[StoredSignal]:
    return make_signals(await tx.all("signals", id=id))


def make_signals(rows: Sequence[Any]) -> list[StoredSignal]:
    return [
        StoredSignal(
            id=id, message_id=message_id, name=name, key=key, at=at, consumed=bool(consumed),
            body=bytes(body),
        )
        for id, message_id, name, key, at, consumed, body in rows
    ]  # fmt: skip
