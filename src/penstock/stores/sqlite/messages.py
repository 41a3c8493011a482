"""Messages wherever they are: get, find, cancel, redrive, replace, purge."""

import json
from collections.abc import Collection, Sequence
from itertools import islice

from penstock.errors import Archived, InvalidState
from penstock.message import NEVER, Flag, Record, State, Verb
from penstock.stores.sqlite import keys
from penstock.stores.sqlite.claim import end
from penstock.stores.sqlite.publish import publish_each
from penstock.stores.sqlite.rows import history_of, message_of
from penstock.stores.sqlite.settle import state_of
from penstock.stores.sqlite.transaction import Delivery, Ticket, Transaction
from penstock.ticket import MISSING, Answer, AnswerKind, Entry, Published, Query

FIND = {
    None: "find_all",
    State.READY: "find_ready",
    State.SCHEDULED: "find_scheduled",
    State.CLAIMED: "find_claimed",
    State.DEAD: "find_dead",
}


def get(tx: Transaction, id: int) -> Record | None:
    """A ticket beats history; what has neither is ready."""
    row = tx.one("message", (id,))
    if row is None:
        if 0 < id <= tx.one("number", ("pruned",))[0]:
            raise Archived(f"message {id} ended and left the store by retention")
        return None
    message, timeline = message_of(row[:7]), tuple(map(history_of, tx.all("timeline", {"id": id})))
    record = Record(message, State.READY, run_at=row[7], expires_at=row[8], timeline=timeline)
    return in_lease(tx, record) or in_schedule(tx, record) or in_dead(tx, record) or told(record)


def in_lease(tx: Transaction, record: Record) -> Record | None:
    row = tx.one("where_lease", (record.message.id,))
    if row is None:
        return None
    attempts, deliveries, flags, until, consumer, percent, note, reason, error = row
    return Record(
        record.message, State.CLAIMED, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, None, until, consumer, bool(flags & Flag.CANCEL_REQUESTED), percent,
        note, record.timeline,
    )  # fmt: skip


def in_schedule(tx: Transaction, record: Record) -> Record | None:
    row = tx.one("where_scheduled", (record.message.id,))
    if row is None:
        return None
    attempts, deliveries, due_at = row
    last = record.timeline[-1] if record.timeline else None
    return Record(
        record.message, State.SCHEDULED, attempts, deliveries,
        last.reason if last else None, last.error if last else None, record.run_at,
        record.expires_at, None if due_at == NEVER else due_at, timeline=record.timeline,
    )  # fmt: skip


def in_dead(tx: Transaction, record: Record) -> Record | None:
    row = tx.one("where_dead", (record.message.id,))
    if row is None:
        return None
    attempts, deliveries, reason, error = row
    return Record(
        record.message, State.DEAD, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, timeline=record.timeline,
    )  # fmt: skip


def told(record: Record) -> Record:
    """By history: ended, or ready with the counters of the last row."""
    if not record.timeline:
        return record
    last = record.timeline[-1]
    return Record(
        record.message, last.state if last.final else State.READY, last.attempts, last.deliveries,
        last.reason, last.error, record.run_at, record.expires_at, timeline=record.timeline,
    )  # fmt: skip


def named(tx: Transaction, queue_id: int, name: str) -> int | None:
    row = tx.one("name_taken", (queue_id, name))
    return row[0] if row else None


def result(tx: Transaction, id: int) -> bytes | None:
    row = tx.one("result", (id, tx.now))
    return row[0] if row else None


def find(tx: Transaction, query: Query) -> list[Record]:
    terms = {
        "queues": json.dumps(query.queue_ids),
        "before": 2**62 if query.before is None else query.before,
        "type": query.type,
        "limit": query.limit,
        "state": query.state,
        "correlation": query.correlation_id,
    }
    if query.correlation_id is not None:
        # All of one story, to be sorted by state here: a correlation id names few messages.
        rows = tx.all("find_correlated", terms | {"limit": -1})
    else:
        rows = tx.all(FIND.get(query.state, "find_ended"), terms)
    records = (record for (id,) in rows if (record := get(tx, id)) is not None)
    fitting = (record for record in records if query.state in (None, record.state))
    return list(islice(fitting, query.limit))


def cancel(tx: Transaction, ids: Sequence[int], force: bool) -> list[Answer]:
    return [cancel_one(tx, id, force) for id in ids]


def cancel_one(tx: Transaction, id: int, force: bool) -> Answer:
    held = tx.one("lease_fence", (id,))
    if held is not None:
        return cancel_claimed(tx, id, held[0], force)
    state = state_of(tx, id)
    if state is None:
        return MISSING
    if state not in (State.READY, State.SCHEDULED):
        return Answer(AnswerKind.INVALID, state)
    end(tx, take(tx, id, state), Verb.CANCEL, State.CANCELLED, "requested")
    return Answer(AnswerKind.DONE, State.CANCELLED)


def cancel_claimed(tx: Transaction, id: int, fence: int, force: bool) -> Answer:
    if not force:
        tx.run("request_cancel", (id, fence))
        return Answer(AnswerKind.DONE, State.CLAIMED, cancel_requested=True)
    row = tx.one("take_lease", (id, fence))
    ticket = Ticket(*row[:8])
    tx.record(ticket, Verb.CANCEL, State.CANCELLED, "forced", delivery=Delivery(*row[8:11]))
    keys.free(tx, id, ticket.flags)
    return Answer(AnswerKind.DONE, State.CANCELLED)


def take(tx: Transaction, id: int, state: State) -> Ticket:
    """Out of ready or scheduled. Aging may have moved it from the rank it was published with."""
    if state is State.SCHEDULED:
        return Ticket(*tx.one("take_scheduled", (id,)))
    message = tx.one("message", (id,))
    queue_id, rank = message[1], message[-1]
    row = tx.one("take_ready", (queue_id, rank, id)) or tx.one("scan_ready", (queue_id, id))
    return Ticket(*row)


def redrive(tx: Transaction, ids: Sequence[int]) -> list[Answer]:
    return [redrive_one(tx, id) for id in ids]


def redrive_one(tx: Transaction, id: int) -> Answer:
    row = tx.one("take_dead", (id,))
    if row is None:
        return not_dead(tx, id)
    message = tx.one("message", (id,))
    expires_at = message[8] or NEVER
    ticket = Ticket(*row)._replace(attempts=0, deliveries=0, expires_at=expires_at)
    keyed = bool(ticket.flags & Flag.KEYED)
    tx.record(ticket, Verb.REDRIVE, State.SCHEDULED if keyed else State.READY)
    if keyed:
        key = message_of(message[:7]).meta.ordering_key or ""
        keys.get_in_line(tx, ticket, key, keys.end_of_line(tx))
    else:
        tx.put_ready(ticket)
    return Answer(AnswerKind.DONE, State.READY)


def not_dead(tx: Transaction, id: int) -> Answer:
    held = tx.one("lease_fence", (id,))
    state = State.CLAIMED if held else state_of(tx, id)
    return MISSING if state is None else Answer(AnswerKind.INVALID, state)


def purge_dead(tx: Transaction, ids: Sequence[int]) -> list[Answer]:
    return [purge_one(tx, id) for id in ids]


def purge_one(tx: Transaction, id: int) -> Answer:
    row = tx.one("take_dead", (id,))
    if row is None:
        return not_dead(tx, id)
    end(tx, Ticket(*row), Verb.CANCEL, State.CANCELLED, "purged")
    return Answer(AnswerKind.DONE, State.CANCELLED)


def replace(tx: Transaction, id: int, entry: Entry) -> Published:
    """Dead and edited: the old one ends, another takes its stead."""
    row = tx.one("take_dead", (id,))
    if row is None:
        raise InvalidState(f"message {id} is not dead any more")
    end(tx, Ticket(*row), Verb.REDRIVE, State.CANCELLED, "replaced")
    return publish_each(tx, (entry,))[0]


def purge(tx: Transaction, queue_id: int, places: Collection[str], limit: int) -> int:
    tickets: list[Ticket] = []
    for place in places:
        tickets += taken(tx, queue_id, place, limit - len(tickets))
    # Only now: what ends may free a key, and its next one moves to another place.
    for ticket in tickets:
        end(tx, ticket, Verb.CANCEL, State.CANCELLED, "purged")
    return len(tickets)


def taken(tx: Transaction, queue_id: int, place: str, limit: int) -> list[Ticket]:
    rows = tx.all(f"some_{place}", (queue_id, limit))
    if place == "ready":
        return [Ticket(*tx.one("take_ready", (queue_id, rank, id))) for rank, id in rows]
    return [Ticket(*tx.one(f"take_{place}", row)) for row in rows]
