"""Reads messages with their state and history, and finds them by filter."""

from penstock.errors import Archived
from penstock.model.message import NEVER, Flag, Record, State
from penstock.model.store_types import Query
from penstock.stores.sql.rows import make_history_row, make_message
from penstock.stores.sql.transaction import SqlTransaction

FIND = {
    None: "find_all",
    State.READY: "find_ready",
    State.SCHEDULED: "find_scheduled",
    State.CLAIMED: "find_claimed",
    State.DEAD: "find_dead",
}
ALL = 2**31 - 1


async def get(tx: SqlTransaction, id: int, *, full: bool = True) -> Record | None:
    """Reads a message. A ticket overrides history; without either it is ready.

    Without `full`, tracebacks are left out.
    """
    row = await tx.one("message", id=id)
    if row is None:
        if 0 < id <= (await tx.one("number", name="pruned"))[0]:
            raise Archived(f"message {id} ended and was removed by retention")
        return None
    rows = await tx.all("timeline", id=id, full=full)
    timeline = tuple(make_history_row(row[:-1], row[-1]) for row in rows)
    message = make_message(row[:7])
    record = Record(message, State.READY, run_at=row[7], expires_at=row[8], timeline=timeline)
    for look in (make_leased_record, make_scheduled_record, make_dead_record):
        if (found := await look(tx, record)) is not None:
            return found
    return make_history_record(record)


async def make_leased_record(tx: SqlTransaction, record: Record) -> Record | None:
    row = await tx.one("where_lease", id=record.message.id)
    if row is None:
        return None
    attempts, deliveries, flags, until, consumer, percent, note, reason, error = row[:9]
    return Record(
        record.message, State.CLAIMED, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, None, until, consumer, bool(flags & Flag.CANCEL_REQUESTED), percent,
        note, record.timeline, *row[9:],
    )  # fmt: skip


async def make_scheduled_record(tx: SqlTransaction, record: Record) -> Record | None:
    row = await tx.one("where_scheduled", id=record.message.id)
    if row is None:
        return None
    attempts, deliveries, due_at = row
    last = record.timeline[-1] if record.timeline else None
    return Record(
        record.message, State.SCHEDULED, attempts, deliveries,
        last.reason if last else None, last.error if last else None, record.run_at,
        record.expires_at, None if due_at == NEVER else due_at, timeline=record.timeline,
    )  # fmt: skip


async def make_dead_record(tx: SqlTransaction, record: Record) -> Record | None:
    row = await tx.one("where_dead", id=record.message.id)
    if row is None:
        return None
    attempts, deliveries, reason, error = row
    return Record(
        record.message, State.DEAD, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, timeline=record.timeline,
    )  # fmt: skip


def make_history_record(record: Record) -> Record:
    """Builds a record from history: ended, or ready with the counters of the last row."""
    if not record.timeline:
        return record
    last = record.timeline[-1]
    return Record(
        record.message, last.state if last.final else State.READY, last.attempts, last.deliveries,
        last.reason, last.error, record.run_at, record.expires_at, timeline=record.timeline,
    )  # fmt: skip


async def find_by_name(tx: SqlTransaction, queue_id: int, name: str) -> int | None:
    row = await tx.one("name_taken", queue_id=queue_id, name=name)
    return row[0] if row else None


async def get_result(tx: SqlTransaction, id: int) -> bytes | None:
    row = await tx.one("result", id=id, now=tx.now)
    return row[0] if row else None


async def find(tx: SqlTransaction, query: Query) -> list[Record]:
    correlated = query.correlation_id is not None
    # A correlation id names few messages, so filter by state here.
    name = "find_correlated" if correlated else FIND.get(query.state, "find_ended")
    rows = await tx.all(
        name,
        queues=tx.listed(query.queue_ids),
        before=2**62 if query.before is None else query.before,
        type=query.type,
        limit=ALL if correlated else query.limit,
        state=query.state,
        correlation=query.correlation_id,
    )
    found: list[Record] = []
    for (id,) in rows:
        record = await get(tx, id, full=False)
        if record is not None and query.state in (None, record.state):
            found.append(record)
            if len(found) == query.limit:
                break
    return found
