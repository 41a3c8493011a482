"""Decides operations on stored messages: which state allows a verb, and what a change writes."""

import re

from msgspec.structs import replace

from penstock.errors import InvalidInput, InvalidState
from penstock.model.changes import Item, ItemVerb
from penstock.model.fields import copy_message_fields
from penstock.model.message import Dedup, Draft, Record, State, StoredMessage
from penstock.model.queue import Queue
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Entry
from penstock.rules import drafts
from penstock.rules.priority import compute_rank

# The error of a replaced message names the new one.
SUCCESSOR = re.compile(r"by (\d+)\b")
MOVED, REPLACED = "moved", "replaced"
WAITING = frozenset({State.READY, State.SCHEDULED})
REPLACEABLE = WAITING | {State.DEAD}


def copy_of(message: StoredMessage, queue: str, body: bytes) -> Draft:
    """Copies a message to a draft without name and dedup key, with the original as parent."""
    return Draft(
        body=body,
        queue=queue,
        type=message.type,
        priority=message.priority,
        **copy_message_fields(replace(message.meta, name=None)),
        parent_id=message.id,
        hops=message.meta.hops,
        callback=message.meta.callback,
        publisher=message.meta.publisher,
    )


def make_successor(record: Record, queue: Queue, body: bytes | None = None) -> Draft:
    """Drafts the message that replaces one that waits or is dead: all but its dedup key go over."""
    message = record.message
    return replace(
        copy_of(message, queue.name, message.body if body is None else body),
        name=message.meta.name,
        run_at=record.due_at if record.state is State.SCHEDULED else None,
        deadline=message.meta.deadline,
        expires_at=record.expires_at,
    )


def is_replaced(state: State, reason: str | None) -> bool:
    """True for the end of a message that another one replaces: its work goes on there."""
    return state is State.CANCELLED and reason in (MOVED, REPLACED)


def find_successor(record: Record) -> int | None:
    """Returns the message that replaced this one, if any."""
    if not is_replaced(record.state, record.reason):
        return None
    found = SUCCESSOR.match(record.error or "")
    return None if found is None else int(found[1])


def make_accepted_entry(draft: Draft, queue: Queue) -> Entry:
    """Makes the entry of a message that was accepted once: no depth refuses it."""
    drafts.check(draft, queue.settings)
    return replace(drafts.make_entry(draft, queue), max_depth=None)


def make_replacement(record: Record, successor: Draft, target: Queue, reason: str) -> Item:
    """Replaces a message by its successor in the target queue."""
    if record.state not in REPLACEABLE:
        raise InvalidState(
            f"message {record.message.id} is {record.state}; only ready, scheduled and dead"
            f" messages can be {reason}"
        )
    entry = make_accepted_entry(successor, target)
    return make_item(ItemVerb.REPLACE, record, reason=reason, entry=entry)


def make_rerank(record: Record, settings: QueueSettings, priority: int) -> Item:
    """Moves a waiting message in its queue, as if it had been published with this priority."""
    if settings.ordering != "priority":
        raise InvalidInput(
            f"the queue of message {record.message.id} orders by {settings.ordering};"
            " only queues with the ordering 'priority' support this"
        )
    if record.state not in WAITING:
        raise InvalidState(
            f"message {record.message.id} is {record.state}; only ready and scheduled messages"
            " can be reprioritised"
        )
    drafts.check_priority(priority, settings)
    rank, basis = compute_rank(Draft(priority=priority), settings)
    if basis == "created":
        rank += record.message.created_at // 1000
    return make_item(ItemVerb.RERANK, record, rank=rank)


def make_copy(record: Record, queue: Queue, dedup: str) -> Item:
    """Publishes a copy of a finished message, once per dedup key."""
    draft = replace(copy_of(record.message, queue.name, record.message.body), dedup=Dedup(dedup))
    return make_item(ItemVerb.REDRIVE, record, entry=make_accepted_entry(draft, queue))


def make_item(
    verb: ItemVerb, record: Record, *, reason: str = "", entry: Entry | None = None, rank: int = 0
) -> Item:
    """Applies to the message as it was read."""
    return Item(
        verb=verb,
        id=record.message.id,
        queue_id=record.message.queue_id,
        seen=record.state,
        as_of=record.timeline[-1].position if record.timeline else 0,
        reason=reason,
        entry=entry,
        rank=rank,
    )
