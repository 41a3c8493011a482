"""Arranges the messages of a correlation id as a tree, and lists what happened to them."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.model.activity import ActivityEntry, Heading, TracedMessage
from penstock.model.message import NEVER, Moment, Record, State
from penstock.model.queue import Queue
from penstock.rules.events import CLAIMED, PUBLISHED, is_id, make_history_entry


def arrange(records: Iterable[Record], queues: Mapping[int, Queue]) -> list[TracedMessage]:
    """Orders messages by their parents or causes, each followed by what it caused."""
    known = {record.message.id: record for record in records}
    children: dict[int | None, list[int]] = {}
    parents = {id: find_parent(record, known) for id, record in known.items()}
    for id in sorted(known, key=lambda each: (known[each].message.created_at, each)):
        children.setdefault(parents[id], []).append(id)
    found: dict[int, TracedMessage] = {}
    for root in [*children.get(None, []), *known]:
        # The second list begins only messages that cause each other in a circle.
        waiting = [(root, 0)]
        while waiting:
            id, depth = waiting.pop()
            if id in found:
                continue
            queue = queues[known[id].message.queue_id]
            parent = parents[id] if depth else None
            found[id] = TracedMessage(known[id], queue.scope.name, queue.name, depth, parent)
            waiting += [(child, depth + 1) for child in reversed(children.get(id, []))]
    return list(found.values())


def find_parent(record: Record, known: Mapping[int, Record]) -> int | None:
    """Returns the parent, or the message that the causation id names, if it is traced too."""
    meta, id = record.message.meta, record.message.id
    if meta.parent_id in known and meta.parent_id != id:
        return meta.parent_id
    cause = meta.causation_id or ""
    return int(cause) if is_id(cause) and int(cause) in known and int(cause) != id else None


def list_events(
    messages: Sequence[TracedMessage], queues: Mapping[int, Queue]
) -> list[ActivityEntry]:
    return [event for each in messages for event in list_own_events(each, queues)]


def list_own_events(traced: TracedMessage, queues: Mapping[int, Queue]) -> Iterable[ActivityEntry]:
    """Yields the publish, the claim and the end of each delivery, and the claim that is open."""
    record, message = traced.record, traced.record.message
    queue = queues[message.queue_id]
    heading = Heading(message.type, message.meta.correlation_id, message.queue_id)
    base = ActivityEntry(
        at=message.created_at,
        source="message",
        position=message.id,
        kind=PUBLISHED,
        scope=traced.scope,
        queue=traced.queue,
        id=message.id,
        type=message.type,
        correlation_id=message.meta.correlation_id,
    )
    yield base
    for row in record.timeline:
        if row.claimed_at is not None:
            yield make_claim(base, row.claimed_at, row.position, row.consumer)
        yield make_history_entry(row, queue, heading)
    if record.state is State.CLAIMED and record.claimed_at is not None:
        yield make_claim(base, record.claimed_at, NEVER, record.consumer)


def make_claim(
    base: ActivityEntry, at: Moment, position: int, consumer: str | None
) -> ActivityEntry:
    """A claim has the position of the row that ends the delivery, if it has ended."""
    return ActivityEntry(
        at=at,
        source="history",
        position=position,
        kind=CLAIMED,
        scope=base.scope,
        queue=base.queue,
        id=base.id,
        type=base.type,
        state=State.CLAIMED.value,
        consumer=consumer,
        correlation_id=base.correlation_id,
    )
