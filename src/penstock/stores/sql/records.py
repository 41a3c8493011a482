"""Converts rows to model structs, and reads messages with their state and history."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import Archived
from penstock.model.activity import Heading, HeldLease
from penstock.model.message import (
    NEVER,
    PLAIN,
    FeedMessage,
    Flag,
    HistoryRow,
    Meta,
    Record,
    State,
    StoredMessage,
    Verb,
)
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Diagnosis, Query, WorkerInfo
from penstock.stores.sql.transaction import SqlTransaction

decode_meta_json = msgspec.json.Decoder(Meta).decode
decode_settings = msgspec.json.Decoder(QueueSettings).decode
decode_schedule = msgspec.json.Decoder(Schedule).decode
encode = msgspec.json.Encoder().encode

# Ten times as fast as calling the enum; an export reads millions of rows.
VERBS: dict[str, Verb] = {each.value: each for each in Verb}
STATES: dict[str, State] = {each.value: each for each in State}


def decode_meta(text: str | None) -> Meta:
    return PLAIN if text is None else decode_meta_json(text)


def make_message(row: Any) -> StoredMessage:
    id, queue_id, type_, priority, created_at, body, meta = row
    return StoredMessage(id, queue_id, type_, priority, created_at, body, decode_meta(meta))


def make_feed_message(row: Any) -> FeedMessage:
    id, queue_id, type_, priority, created_at, body, meta, run_at, expires_at = row
    return FeedMessage(
        id, queue_id, type_, priority, created_at, body, decode_meta(meta), run_at, expires_at
    )


def make_history_row(row: Any, traceback: str | None = None) -> HistoryRow:
    (
        position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
        claimed_at, at, due_at, final,
    ) = row  # fmt: skip
    return HistoryRow(
        position, id, queue_id, VERBS[verb], STATES[state], reason, error, attempts, deliveries,
        consumer, fence, claimed_at, at, due_at, bool(final), traceback,
    )  # fmt: skip


def make_queue(row: Any) -> Queue:
    id, scope_id, tenant, scope, paused, name, state, settings = row
    return Queue(
        id,
        Scope(scope_id, tenant, scope, bool(paused)),
        name,
        QueueState(state),
        decode_settings(settings),
    )


def make_schedule(row: Any) -> Schedule:
    id, queue_id, paused, next_at, last_at, plan = row
    return msgspec.structs.replace(
        decode_schedule(plan),
        id=id,
        queue_id=queue_id,
        paused=bool(paused),
        next_at=next_at,
        last_at=last_at,
    )


class WorkerProfile(msgspec.Struct, frozen=True):
    """The queues and types that a worker serves, stored as one JSON column."""

    queues: tuple[str, ...]
    types: dict[str, tuple[str, ...]]
    slots: int
    version: str
    scope: str = "default"
    tenant: str = ""


decode_profile = msgspec.json.Decoder(WorkerProfile).decode


def encode_profile(worker: WorkerInfo) -> str:
    profile = WorkerProfile(
        worker.queues, worker.types, worker.slots, worker.version, worker.scope, worker.tenant
    )
    return encode(profile).decode()


def make_worker(row: Any) -> WorkerInfo:
    id, host, pid, profile, started_at, seen_at, stopping = row
    said = decode_profile(profile)
    return WorkerInfo(
        id=id,
        host=host,
        pid=pid,
        queues=said.queues,
        started_at=started_at,
        seen_at=seen_at,
        stopping=bool(stopping),
        types=said.types,
        slots=said.slots,
        version=said.version,
        scope=said.scope,
        # Older versions stored the tenant only in the ids of workers over HTTP.
        tenant=said.tenant or id.rpartition("/")[0] or "default",
    )


FIND = {
    None: "find_all",
    State.READY: "find_ready",
    State.SCHEDULED: "find_scheduled",
    State.CLAIMED: "find_claimed",
    State.DEAD: "find_dead",
}
ALL = 2**31 - 1
# Messages of one correlation id are read in parts, because their bodies may be large.
GET_BATCH = 1_000


async def get(tx: SqlTransaction, id: int) -> Record | None:
    """Reads a message with its tracebacks."""
    if found := await get_many(tx, (id,), full=True):
        return found[0]
    if 0 < id <= (await tx.one("number", name="pruned"))[0]:
        raise Archived(f"message {id} ended and was removed by retention")
    return None


async def get_many(tx: SqlTransaction, ids: Sequence[int], *, full: bool = False) -> list[Record]:
    """Reads messages in the given order, without those that are gone.

    A ticket overrides history; without either it is ready. With `full`, tracebacks are included.
    """
    if not ids:
        return []
    encoded = tx.encode_ids(ids)
    timelines: dict[int, list[HistoryRow]] = {}
    for row in await tx.all("timelines", ids=encoded, full=full):
        timelines.setdefault(row[1], []).append(make_history_row(row[:-1], row[-1]))
    places = [
        (make, {row[0]: row[1:] for row in await tx.all(statement, ids=encoded)})
        for statement, make in RECORD_MAKERS.items()
    ]
    found: dict[int, Record] = {}
    for row in await tx.all("messages", ids=encoded):
        id, timeline = row[0], tuple(timelines.get(row[0], ()))
        record = Record(
            make_message(row[:7]), State.READY, run_at=row[7], expires_at=row[8], timeline=timeline
        )
        placed = next((make(record, rows[id]) for make, rows in places if id in rows), None)
        found[id] = placed or make_history_record(record)
    return [found[id] for id in ids if id in found]


def make_leased_record(record: Record, row: Any) -> Record:
    attempts, deliveries, flags, until, consumer, percent, note, reason, error = row[:9]
    return Record(
        record.message, State.CLAIMED, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, None, until, consumer, bool(flags & Flag.CANCEL_REQUESTED), percent,
        note, record.timeline, *row[9:],
    )  # fmt: skip


def make_scheduled_record(record: Record, row: Any) -> Record:
    attempts, deliveries, due_at, blocked_by = row
    last = record.timeline[-1] if record.timeline else None
    return Record(
        record.message, State.SCHEDULED, attempts, deliveries,
        last.reason if last else None, last.error if last else None, record.run_at,
        record.expires_at, None if due_at == NEVER else due_at, timeline=record.timeline,
        blocked_by=blocked_by,
    )  # fmt: skip


def make_dead_record(record: Record, row: Any) -> Record:
    attempts, deliveries, reason, error = row
    return Record(
        record.message, State.DEAD, attempts, deliveries, reason, error, record.run_at,
        record.expires_at, timeline=record.timeline,
    )  # fmt: skip


RECORD_MAKERS = {
    "leases_of": make_leased_record,
    "scheduled_of": make_scheduled_record,
    "dead_of": make_dead_record,
}


def make_history_record(record: Record) -> Record:
    """Builds a record from history: ended, or ready with the counters of the last row."""
    if not record.timeline:
        return record
    last = record.timeline[-1]
    return Record(
        record.message, last.state if last.final else State.READY, last.attempts, last.deliveries,
        last.reason, last.error, record.run_at, record.expires_at, timeline=record.timeline,
    )  # fmt: skip


async def diagnose(tx: SqlTransaction, id: int, queue_id: int, limit: int) -> Diagnosis:
    line = [row[0] for row in await tx.all("front_of_line", queue_id=queue_id, limit=limit)]
    ((claimed,),) = await tx.all("claimed_count", queue_id=queue_id)
    return Diagnosis(line.index(id) if id in line else len(line), claimed)


async def find_by_name(tx: SqlTransaction, queue_id: int, name: str) -> int | None:
    row = await tx.one("name_taken", queue_id=queue_id, name=name)
    return row[0] if row else None


async def find_oldest(tx: SqlTransaction, query: Query, after: int) -> list[Record]:
    """Reads on in the order of ids until enough are in the state."""
    found: list[Record] = []
    while len(found) < query.limit:
        rows = await tx.all(
            "find_oldest",
            queues=tx.encode_ids(query.queue_ids),
            after=after,
            type=query.type,
            limit=query.limit,
        )
        records = await get_many(tx, [id for (id,) in rows])
        found += [record for record in records if query.state in (None, record.state)]
        if len(rows) < query.limit:
            break
        after = rows[-1][0]
    return found[: query.limit]


async def find(tx: SqlTransaction, query: Query) -> list[Record]:
    if query.after is not None:
        return await find_oldest(tx, query, query.after)
    correlated = query.correlation_id is not None
    # A correlation id names few messages, so filter by state here.
    name = "find_correlated" if correlated else FIND.get(query.state, "find_ended")
    rows = await tx.all(
        name,
        queues=tx.encode_ids(query.queue_ids),
        before=2**62 if query.before is None else query.before,
        type=query.type,
        limit=ALL if correlated else query.limit,
        state=query.state,
        correlation=query.correlation_id,
    )
    found: list[Record] = []
    for start in range(0, len(rows), GET_BATCH):
        records = await get_many(tx, [id for (id,) in rows[start : start + GET_BATCH]])
        found += [record for record in records if query.state in (None, record.state)]
        if len(found) >= query.limit:
            break
    return found[: query.limit]


async def list_held(tx: SqlTransaction, after: int, limit: int) -> list[HeldLease]:
    return [HeldLease(*row) for row in await tx.all("held", after=after, limit=limit)]


async def get_headings(tx: SqlTransaction, ids: Sequence[int]) -> dict[int, Heading]:
    return make_headings(await tx.all("headings", ids=tx.encode_ids(ids)))


def make_headings(rows: Sequence[Any]) -> dict[int, Heading]:
    return {
        id: Heading(type, decode_meta(meta).correlation_id, queue_id)
        for id, queue_id, type, meta in rows
    }
