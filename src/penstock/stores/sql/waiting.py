"""Holds messages until what they wait for has happened, and resumes them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.errors import ChildRefused, WaitsForItself
from penstock.model.message import (
    MAX_POSITION,
    NEVER,
    After,
    Flag,
    Moment,
    State,
    Verb,
    keep_lasting_flags,
)
from penstock.model.store_types import Answer, AnswerKind, Completion, Entry, Published
from penstock.model.waiting import Edge, HeldEnd, Hold, StepRecord, StoredHold, Wait
from penstock.rules.waiting import mark_awaited
from penstock.store import Check
from penstock.stores.sql.holds import (
    flag_awaited,
    hold_published,
    list_awaited,
    list_stored,
    make_holds,
    put_holds,
)
from penstock.stores.sql.publish import LockingTransaction, any_refused, publish_all, publish_atomic
from penstock.stores.sql.results import keep_result
from penstock.stores.sql.settle import end, explain, find_state
from penstock.stores.sql.steps import put_step
from penstock.stores.sql.transaction import DeliveryRow, SqlTransaction, Ticket

Publish: TypeAlias = Callable[[Any, Sequence[Entry]], Awaitable[list[Published]]]
encode = msgspec.json.Encoder().encode


async def wait(tx: SqlTransaction, asked: Wait, publish: Publish) -> Answer:
    """Ends the delivery: records, children, holds, nudge, history and ticket in one transaction."""
    if asked.seen_flags & Flag.FROM_DEAD:
        return Answer(AnswerKind.INVALID, State.CLAIMED)
    row = await tx.one(
        "settle", id=asked.id, fence=asked.fence, flags=asked.seen_flags, expired_by=MAX_POSITION
    )
    if row is None:
        return await explain(tx, asked.id, asked.fence, Verb.WAIT)
    held, delivery = Ticket(*row[:8]), DeliveryRow(*row[8:11])
    children = await publish_children(tx, asked, publish)
    holds = make_holds(asked.id, asked.fence, asked.holds, tx.now)
    for step in list_steps(asked, children):
        await put_step(tx, asked.id, asked.fence, settle_due(step, holds, tx.now))
    await put_holds(tx, holds)
    await put_edges(tx, asked.id, asked.fence, asked.holds, [child.id for child in children])
    for hold in asked.holds:
        await flag_awaited(tx, list_stored(hold.after or After(), children))
    await tx.run("nudge_add", held_id=asked.id)
    due_at = min((hold.due_at for hold in holds), default=NEVER)
    records = Flag.STEPS if asked.steps or asked.children_step is not None else 0
    ticket = held._replace(
        attempts=asked.attempts,
        deliveries=asked.deliveries,
        flags=keep_lasting_flags(held.flags) | Flag.HELD | records,
    )
    await tx.put_scheduled(ticket, due_at)
    await tx.record(
        ticket, Verb.WAIT, State.SCHEDULED, asked.reason, delivery=delivery,
        due_at=None if due_at == NEVER else due_at,
    )  # fmt: skip
    return Answer(AnswerKind.DONE, State.SCHEDULED, due_at=due_at)


async def publish_children(tx: SqlTransaction, asked: Wait, publish: Publish) -> list[Published]:
    if not asked.children:
        return []
    afters = [hold.after for hold in asked.holds if hold.after is not None]
    entries = mark_awaited(asked.children, afters)
    outcomes = await publish(tx, entries)
    for place, outcome in enumerate(outcomes):
        if outcome.code:
            raise ChildRefused.at(place, outcome.code)
        if outcome.id == asked.id:
            raise ChildRefused.at(place, WaitsForItself.code)
    await hold_published(tx, entries, outcomes)
    return outcomes


def list_steps(asked: Wait, children: Sequence[Published]) -> list[StepRecord]:
    if asked.children_step is None:
        return list(asked.steps)
    ids = [child.id for child in children]
    return [*asked.steps, replace(asked.children_step, body=encode(ids))]


def settle_due(step: StepRecord, holds: Sequence[StoredHold], now: Moment) -> StepRecord:
    """Gives an unfinished step the time limit of its hold, by the store's clock."""
    due_at = holds[0].due_at if holds else NEVER
    if step.done or step.due_at is not None or due_at == NEVER:
        return step
    return replace(step, due_at=due_at)


async def put_edges(
    tx: SqlTransaction, held_id: int, number: int, holds: Sequence[Hold], published: Sequence[int]
) -> None:
    await tx.add_edges(
        [
            {"held_id": held_id, "number": number, "awaited_id": awaited}
            for hold in holds
            if hold.after is not None
            for awaited in list_awaited(hold.after, published)
        ]
    )


async def publish_holding(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes all or nothing, with the holds of messages that wait for others."""
    if not any(entry.after for entry in entries):
        return await publish_atomic(tx, entries)
    entries = mark_awaited(entries, [entry.after for entry in entries if entry.after])
    outcomes = await publish_atomic(tx, entries)
    if not any_refused(outcomes):
        await hold_published(tx, entries, outcomes)
    return outcomes


async def publish_in_caller(tx: LockingTransaction, entries: Sequence[Entry]) -> list[Published]:
    """Publishes in the caller's transaction; all or nothing if some wait for others."""
    afters = any(entry.after for entry in entries)
    return await (publish_holding if afters else publish_all)(tx, entries)


async def end_held(tx: SqlTransaction, items: Sequence[HeldEnd]) -> list[Answer]:
    """Ends them in the order of their ids, so that two batches do not block each other."""
    places = sorted(range(len(items)), key=lambda place: items[place].id)
    answers = {place: await end_held_one(tx, items[place]) for place in places}
    return [answers[place] for place in range(len(items))]


async def end_held_one(tx: SqlTransaction, item: HeldEnd) -> Answer:
    """Ends a held message. The first to take its ticket wins."""
    row = await tx.one("take_held", id=item.id)
    if row is None:
        return await explain_not_held(tx, item.id)
    ticket = Ticket(*row)
    if item.result is not None:
        await keep_result(tx, Completion(item.id, 0, item.result))
    await end(tx, ticket, item.verb, item.state, item.reason)
    return Answer(AnswerKind.DONE, item.state)


async def explain_not_held(tx: SqlTransaction, id: int) -> Answer:
    claimed = await tx.one("lease_fence", id=id)
    state = State.CLAIMED if claimed else await find_state(tx, id)
    return Answer(AnswerKind.MISSING if state is None else AnswerKind.INVALID, state)


async def edges(tx: SqlTransaction, id: int) -> list[Edge]:
    return [
        Edge(held_id, awaited_id, number, None if state is None else State(state))
        for held_id, awaited_id, number, state in await tx.all("edges_of", id=id)
    ]


async def holds(tx: SqlTransaction, ids: Sequence[int]) -> list[StoredHold]:
    return [StoredHold(*row) for row in await tx.all("holds_of", ids=tx.encode_ids(sorted(ids)))]


async def check_waits(tx: SqlTransaction) -> Check:
    """Counts what is not written together: waiting messages, their holds, ends and nudges."""
    return judge_waits(*await tx.one("torn_waits"))


def judge_waits(unheld: int, orphans: int, missed: int, holds: int) -> Check:
    if unheld or orphans or missed:
        text = (
            f"{unheld} waiting messages without a hold, {orphans} holds without a message,"
            f" {missed} waiting messages that missed an end"
        )
        return Check("waits", f"{text}; please report this if it lasts a minute", False)
    return Check("waits", f"{holds} holds")
