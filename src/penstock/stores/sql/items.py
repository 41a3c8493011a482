"""Applies the items of a change: one operation on one stored message each.

An item locks the ticket where the caller saw it, without waiting. It then checks that nothing has
happened to the message since.
"""

from collections.abc import Sequence
from typing import Any

from penstock.errors import NameTaken
from penstock.model.changes import AWAITED, Item, ItemAnswer, ItemVerb
from penstock.model.message import NEVER, Flag, State, Verb
from penstock.model.store_types import AnswerKind, Entry
from penstock.stores.sql import ordering_keys
from penstock.stores.sql.dedup import remember
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.messages import purge_set, put_back, redrive_set
from penstock.stores.sql.publish import (
    compute_due_at,
    place,
    publish_checked,
    ticket_of,
    write_message,
)
from penstock.stores.sql.settle import find_state
from penstock.stores.sql.transaction import SqlTransaction, Ticket

WAITING = frozenset({State.READY, State.SCHEDULED})
RESTING = WAITING | {State.DEAD}
ALLOWED = {
    ItemVerb.REDRIVE: frozenset({State.DEAD}),
    ItemVerb.CANCEL: WAITING | {State.CLAIMED},
    ItemVerb.PURGE: RESTING,
    ItemVerb.REPLACE: RESTING,
    ItemVerb.RERANK: WAITING,
}
MISSING = ItemAnswer(AnswerKind.MISSING)
REDRIVEN = ItemAnswer(AnswerKind.DONE, State.READY)
CANCELLED = ItemAnswer(AnswerKind.DONE, State.CANCELLED)
# For dead messages.
APPLY_SET = {ItemVerb.REDRIVE: (redrive_set, REDRIVEN), ItemVerb.PURGE: (purge_set, CANCELLED)}


async def apply_items(tx: SqlTransaction, items: Sequence[Item]) -> tuple[ItemAnswer, ...]:
    """Applies dead messages that need no decision of their own as a set, then the rest in turn."""
    done = await apply_dead_sets(tx, items)
    return tuple([done.get(item.id) or await apply_item(tx, item) for item in items])


async def apply_dead_sets(tx: SqlTransaction, items: Sequence[Item]) -> dict[int, ItemAnswer]:
    if len({item.id for item in items}) < len(items):
        # The order of several operations on one message counts.
        return {}
    sets: dict[tuple[ItemVerb, str, int | None], list[int]] = {}
    for item in items:
        if item.seen is State.DEAD and item.verb in APPLY_SET:
            sets.setdefault((item.verb, item.by, item.as_of), []).append(item.id)
    done: dict[int, ItemAnswer] = {}
    for (verb, by, as_of), ids in sets.items():
        apply_set, answer = APPLY_SET[verb]
        done |= dict.fromkeys(await apply_set(tx, ids, by or None, as_of), answer)
    return done


async def apply_item(tx: SqlTransaction, item: Item) -> ItemAnswer:
    if item.verb is ItemVerb.REDRIVE and item.entry is not None and item.seen.final:
        return await publish_copy(tx, item, item.entry)
    if item.seen not in ALLOWED[item.verb]:
        return ItemAnswer(AnswerKind.INVALID, item.seen)
    locked = await lock_ticket(tx, item)
    if locked is None:
        return await explain_moved(tx, item)
    if await is_changed(tx, item):
        return ItemAnswer(AnswerKind.CHANGED, item.seen)
    return await APPLY[item.verb](tx, item, locked)


async def lock_ticket(tx: SqlTransaction, item: Item) -> Any:
    """Returns the rank of a ready ticket, the place in line of a scheduled one, or the fence.

    The flags come last, except those of a lease.
    """
    match item.seen:
        case State.READY:
            return await lock_ready(tx, item)
        case State.SCHEDULED:
            return await tx.one("lock_scheduled", id=item.id)
        case State.DEAD:
            return await tx.one("lock_dead", id=item.id)
        case _:
            held = await tx.one("lease_fence", id=item.id)
            return None if held is None or held[1] else held


async def lock_ready(tx: SqlTransaction, item: Item) -> Any:
    """Looks at the rank that was seen, then at the one it was published with, then everywhere."""
    ranks = [] if item.seen_rank is None else [item.seen_rank]
    if not ranks and (row := await tx.one("rank_of", id=item.id)) is not None:
        ranks = [row[0]]
    for rank in ranks:
        found = await tx.one("lock_ready", queue_id=item.queue_id, rank=rank, id=item.id)
        if found is not None:
            return found
    if await find_state(tx, item.id) is not State.READY or await is_claimed(tx, item.id):
        return None
    return await tx.one("lock_ready_anywhere", queue_id=item.queue_id, id=item.id)


async def is_claimed(tx: SqlTransaction, id: int) -> bool:
    return await tx.one("lease_fence", id=id) is not None


async def explain_moved(tx: SqlTransaction, item: Item) -> ItemAnswer:
    """Answers BUSY if the ticket is locked, or became due meanwhile."""
    if await is_claimed(tx, item.id):
        kind = AnswerKind.BUSY if item.seen is State.CLAIMED else AnswerKind.INVALID
        return ItemAnswer(kind, State.CLAIMED)
    state = await find_state(tx, item.id)
    if state is None:
        return MISSING
    if state.final:
        return ItemAnswer(AnswerKind.INVALID, state)
    moved = state is not item.seen and await is_changed(tx, item)
    return ItemAnswer(AnswerKind.CHANGED if moved else AnswerKind.BUSY, state)


async def is_changed(tx: SqlTransaction, item: Item) -> bool:
    if item.as_of is None:
        return False
    row = await tx.one("last_position", id=item.id)
    return (row[0] or 0) > item.as_of


async def publish_copy(tx: SqlTransaction, item: Item, entry: Entry) -> ItemAnswer:
    state = await find_state(tx, item.id)
    if state is None:
        return MISSING
    if not state.final:
        return ItemAnswer(AnswerKind.INVALID, state)
    published = await publish_checked(tx, entry)
    kind = AnswerKind.ALREADY if published.duplicate else AnswerKind.DONE
    if published.code is not None:
        return ItemAnswer(AnswerKind.INVALID, code=published.code)
    return ItemAnswer(kind, state, published.id)


async def take(tx: SqlTransaction, item: Item, locked: Any) -> Ticket:
    """Removes the ticket, which the transaction has locked."""
    match item.seen:
        case State.READY:
            values = {"queue_id": item.queue_id, "rank": locked[0], "id": item.id}
            return Ticket(*await tx.one("take_ready", **values))
        case State.SCHEDULED:
            return Ticket(*await tx.one("take_scheduled", id=item.id))
        case _:
            return Ticket(*await tx.one("take_dead", id=item.id))


async def redrive(tx: SqlTransaction, item: Item, _: Any) -> ItemAnswer:
    await put_back(tx, await tx.one("take_dead", id=item.id), item.by or None)
    return REDRIVEN


async def cancel(tx: SqlTransaction, item: Item, locked: Any) -> ItemAnswer:
    if item.seen is State.CLAIMED:
        await tx.run("request_cancel", id=item.id, fence=locked[0])
        return ItemAnswer(AnswerKind.DONE, State.CLAIMED)
    ticket = await take(tx, item, locked)
    reason = "purged" if item.verb is ItemVerb.PURGE else "requested"
    await tx.record(ticket, Verb.CANCEL, State.CANCELLED, reason, error=item.by or None)
    await finalize(tx, item.id, ticket.flags, State.CANCELLED, reason)
    return CANCELLED


async def rerank(tx: SqlTransaction, item: Item, locked: Any) -> ItemAnswer:
    if item.seen is State.SCHEDULED:
        changed = await tx.run("rerank_scheduled", id=item.id, rank=item.rank)
        return ItemAnswer(AnswerKind.DONE if changed else AnswerKind.ALREADY, State.SCHEDULED)
    if locked[0] == item.rank:
        return ItemAnswer(AnswerKind.ALREADY, State.READY)
    ticket = await take(tx, item, locked)
    await tx.put_ready(ticket._replace(rank=item.rank))
    return ItemAnswer(AnswerKind.DONE, State.READY)


async def replace(tx: SqlTransaction, item: Item, locked: Any) -> ItemAnswer:
    """Publishes the replacement and ends the old message, without a callback."""
    entry = item.entry
    if entry is None:
        raise ValueError("a replacement needs an entry")
    if await is_involved(tx, item, locked[-1]):
        return ItemAnswer(AnswerKind.INVALID, item.seen, code=AWAITED)
    if not await can_take_name(tx, item, entry):
        return ItemAnswer(AnswerKind.INVALID, code=NameTaken.code)
    old = await take(tx, item, locked)
    id = await write_message(tx, entry)
    await take_over_name(tx, item, entry, id)
    detail = " ".join(filter(None, (f"by {id}", item.by)))
    await tx.record(old, Verb.CANCEL, State.CANCELLED, item.reason, error=detail)
    line = locked[1:3] if item.seen is State.SCHEDULED else (None, None)
    if not await keep_turn(tx, old, entry, id, *line):
        await place(tx, entry, id, full=False)
    await ordering_keys.free(tx, item.id, old.flags)
    return ItemAnswer(AnswerKind.DONE, State.CANCELLED, id)


async def is_involved(tx: SqlTransaction, item: Item, flags: int) -> bool:
    """True if holds, steps or other messages know it by its id, so that it must keep it.

    The steps of a dead message are given up: its replacement runs from the start.
    """
    if flags & Flag.HELD or (flags & Flag.STEPS and item.seen is not State.DEAD):
        return True
    return bool(flags & Flag.AWAITED) and await tx.one("is_awaited", id=item.id) is not None


async def can_take_name(tx: SqlTransaction, item: Item, entry: Entry) -> bool:
    if entry.name is None:
        return True
    owner = await tx.one("name_taken", queue_id=entry.queue_id, name=entry.name)
    return owner is None or owner[0] == item.id


async def take_over_name(tx: SqlTransaction, item: Item, entry: Entry, id: int) -> None:
    """Takes the name. In the same queue, it then names the replacement."""
    if entry.name is not None and entry.queue_id == item.queue_id:
        passed = {"queue_id": entry.queue_id, "name": entry.name, "new": id}
        if await tx.run("pass_name", **passed):
            return
    await remember(tx, entry, id)


async def keep_turn(
    tx: SqlTransaction, old: Ticket, entry: Entry, id: int, key: str | None, position: int | None
) -> bool:
    """Keeps the turn in the line of the same ordering key. Returns False if there is none."""
    if not old.flags & Flag.KEYED or entry.queue_id != old.queue_id or entry.ordering_key is None:
        return False
    ticket, due = ticket_of(entry, id, tx.now), compute_due_at(entry, tx.now)
    head = await tx.one("head_of", id=old.id)
    if head is not None and head[1] == entry.ordering_key:
        await tx.lock(ordering_keys.make_lockable(*head))
        await tx.run("pass_head", id=old.id, new=id)
        if due > tx.now:
            await tx.put_scheduled(ticket, due)
        else:
            await tx.put_ready(ticket)
        return True
    if key != entry.ordering_key:
        return False
    turn = old.id if position is None else position
    await tx.put_scheduled(ticket, due if due > tx.now else NEVER, key, turn)
    if due <= tx.now:
        await ordering_keys.advance(tx, old.queue_id, key)
    return True


APPLY = {
    ItemVerb.REDRIVE: redrive,
    ItemVerb.CANCEL: cancel,
    ItemVerb.PURGE: cancel,
    ItemVerb.REPLACE: replace,
    ItemVerb.RERANK: rerank,
}
