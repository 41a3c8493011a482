"""Publishes and settles as jobs of the single writer, as sets where that is faster."""

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from time import monotonic
from typing import ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.model.activity import Heading
from penstock.model.changes import Change, Changed
from penstock.model.documents import AuditEntry, acting
from penstock.model.message import Flag, Moment, State, Verb
from penstock.model.store_types import (
    DONE,
    Answer,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Move,
    Promoted,
    Published,
    Sweep,
)
from penstock.model.waiting import (
    SignalAnswer,
    SignalDraft,
    StepLog,
    StepSave,
    StepSaved,
    StoredSignal,
)
from penstock.stores.sql import messages, queues, records, resume, steps, upkeep
from penstock.stores.sql import settle as settling
from penstock.stores.sql.advance import advance, list_change_entries
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.finalize import finalize
from penstock.stores.sql.results import keep_result
from penstock.stores.sql.settle import complete_one, explain, extend_one
from penstock.stores.sqlite import caller_transaction, publish
from penstock.stores.sqlite.caller_transaction import ADAPTERS
from penstock.stores.sqlite.database import SqliteDatabase, bind
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import FIRST, LAST, NEXT, Work

P = ParamSpec("P")
T = TypeVar("T")
encode = msgspec.json.Encoder().encode


class SqliteVerbs:
    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.rivals = ForeignWriteDetector()

    def write(
        self, order: int, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Hands a hot write to the writer, without the coroutines of the database."""
        database = self.database
        if database.closed or database.files is None:
            database.refuse_closed()
        else:
            database.files.check_identity()
        return database.writer.run(order, bind(work, *args, **kwargs))

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if self.database.files is not None:
            self.database.files.check_room(publish.count_body_bytes(entries))
        return await self.write(NEXT, publish.publish, entries, atomic)

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        caller = ADAPTERS.adapt(connection)
        return self.notify_committed(*caller.run(self.publishing(entries)))

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        caller = await ADAPTERS.adapt_async(connection)
        return self.notify_committed(*await caller.arun(self.publishing(entries)))

    def complete_on(self, connection: object, item: Completion) -> None:
        ADAPTERS.adapt(connection).run(self.completing(item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await (await ADAPTERS.adapt_async(connection)).arun(self.completing(item))

    def save_step_on(self, connection: object, item: StepSave) -> StepSaved:
        return ADAPTERS.adapt(connection).run(self.saving(item))

    async def asave_step_on(self, connection: object, item: StepSave) -> StepSaved:
        return await (await ADAPTERS.adapt_async(connection)).arun(self.saving(item))

    def advance_on(self, connection: object, change: Change) -> Changed | None:
        return ADAPTERS.adapt(connection).run(self.advancing(change))

    async def aadvance_on(self, connection: object, change: Change) -> Changed | None:
        return await (await ADAPTERS.adapt_async(connection)).arun(self.advancing(change))

    def advancing(self, change: Change) -> Callable[[sqlite3.Connection], Changed | None]:
        self.database.refuse_replaced()
        path, now = self.database.path, self.database.clock()
        return lambda db: caller_transaction.advance(db, path, now, change)

    def saving(self, item: StepSave) -> Callable[[sqlite3.Connection], StepSaved]:
        self.database.refuse_replaced()
        path, now = self.database.path, self.database.clock()
        return lambda db: caller_transaction.save_step(db, path, now, item)

    def publishing(
        self, entries: Sequence[Entry]
    ) -> Callable[[sqlite3.Connection], tuple[list[Published], bool]]:
        self.database.refuse_replaced()
        path, now = self.database.path, self.database.clock()
        return lambda db: caller_transaction.publish(db, path, now, entries)

    def completing(self, item: Completion) -> Callable[[sqlite3.Connection], None]:
        self.database.refuse_replaced()
        path, now = self.database.path, self.database.clock()
        return lambda db: caller_transaction.complete(db, path, now, item)

    def notify_committed(self, outcomes: list[Published], committed: bool) -> list[Published]:
        if committed:
            self.database.notifier.ring()
        return outcomes

    def in_transaction(self, connection: object) -> bool:
        return caller_transaction.in_transaction(connection)

    # Consumers.

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        return await self.write(FIRST, complete_all, items)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        return await self.database.write_in(FIRST, extend_all, items)

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        return self.database.look_now(settling.leases, locks)

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return self.database.look_now(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        reclaims = any(move.expired_by is not None for move in moves)
        return await self.database.write_in(LAST if reclaims else FIRST, settling.settle, moves)

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        return self.database.look_now(find_any_ready, queue_ids)

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        return self.database.look_now(find_any_of_types, queue_id, types)

    publish_inside = staticmethod(publish.publish_each)

    async def save_steps(self, items: Sequence[StepSave]) -> list[StepSaved]:
        return await self.database.write(steps.save_steps, items, self.publish_inside)

    async def steps(self, id: int) -> StepLog:
        return self.database.look_now(steps.steps, id)

    async def signal_held(self, draft: SignalDraft) -> SignalAnswer | None:
        return None

    async def signals(self, id: int) -> list[StoredSignal]:
        return self.database.look_now(steps.signals, id)

    async def headings(self, ids: Sequence[int]) -> dict[int, Heading]:
        return await self.database.read(records.get_headings, ids) if ids else {}

    async def look_when(self) -> tuple[Moment, bool, Moment | None]:
        """Returns the time, whether a message was nudged, and when the next hold is due."""
        nudged, next_at = self.database.look_now(find_look)
        return self.database.clock(), nudged, next_at

    # Agents and operators.

    async def expired_leases(self, limit: int) -> Sweep:
        return self.database.look_now(settling.expired_leases, limit)

    async def promote(self, limit: int) -> Promoted:
        next_at, now = self.database.look_now(upkeep.next_due), self.database.clock()
        if next_at is None or next_at > now:
            return Promoted(0, now, next_at)
        return await self.database.write(upkeep.promote, limit)

    async def directory_version(self) -> int:
        return self.database.look_now(queues.directory_version)

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        return await self.database.write(with_audit(messages.cancel), ids, force)

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        return await self.database.write(with_audit(messages.redrive), ids)

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        return await self.database.write(with_audit(messages.purge_dead), ids)

    async def advance(self, change: Change) -> Changed | None:
        entries = list_change_entries(change)
        if entries and self.database.files is not None:
            self.database.files.check_room(publish.count_body_bytes(entries))
        if not change.items:
            return await self.database.write(advance, change, publish.publish_atomic, acting.get())
        changed = await self.database.write(advance_timed, change, acting.get(), self.rivals)
        if changed is None or not changed.held:
            return changed
        return replace(changed, commit=self.database.writing.commit_time)


class ForeignWriteDetector:
    """Notices whether anything else was written between two changes with items."""

    def __init__(self) -> None:
        # What other connections and this one had written after the last change.
        self.seen = (-1, -1)

    def have_written(self, db: sqlite3.Connection) -> bool:
        return self.read_counters(db) != self.seen

    def note_written(self, db: sqlite3.Connection) -> None:
        self.seen = self.read_counters(db)

    def read_counters(self, db: sqlite3.Connection) -> tuple[int, int]:
        version: int = db.execute("PRAGMA data_version").fetchone()[0]
        return version, db.total_changes


async def advance_timed(
    tx: SqliteTransaction, change: Change, act: AuditEntry | None, rivals: ForeignWriteDetector
) -> Changed | None:
    began, have_written = monotonic(), rivals.have_written(tx.db)
    changed = await advance(tx, change, publish.publish_atomic, act)
    rivals.note_written(tx.db)
    if changed is None or not have_written:
        return changed
    return replace(changed, held=monotonic() - began)


async def find_look(tx: SqliteTransaction) -> tuple[bool, Moment | None]:
    nudged = await tx.one("nudged", limit=1) is not None
    return nudged, await resume.find_next_due(tx)


async def complete_all(tx: SqliteTransaction, items: Sequence[Completion]) -> list[Answer]:
    """Completes as sets: writes history, then deletes the leases."""
    if any(item.seen for item in items):
        return [
            await (complete_one(tx, item) if item.seen else complete_alone(tx, item))
            for item in items
        ]
    fences = {item.id: item.fence for item in items}
    repeated = len(fences) < len(items)
    if repeated and any(fences[item.id] != item.fence for item in items):
        # The same id under two fences: complete one by one.
        return [await complete_alone(tx, item) for item in items]
    locks = encode(fences).decode()
    flagged = tx.execute("flagged", (locks,)).fetchall()
    cursor = tx.execute("complete_history", (tx.now, locks))
    count = cursor.rowcount
    if count:
        tx.execute("complete_remove", (locks,))
        await finalize_completed(tx, flagged)
    if count == len(items):
        await keep_results(tx, items)
        return [DONE] * count
    last = cursor.lastrowid or 0
    done = set(tx.execute("history_tail", (last - count,))) if count else set()
    # If a batch completes one lease several times, the first completion counts.
    wanted = {(item.id, item.fence): item for item in reversed(items)}
    await keep_results(tx, [item for lock, item in wanted.items() if lock in done])
    return [await answer_completed(tx, item, done) for item in items]


async def finalize_completed(tx: SqliteTransaction, flagged: Iterable[tuple[int, int]]) -> None:
    """Finalizes completed messages. Those that only nudge waiting messages are one set."""
    awaited: list[int] = []
    for id, flags in flagged:
        if flags & Flag.ENDING == Flag.AWAITED:
            awaited.append(id)
        else:
            await finalize(tx, id, flags, State.COMPLETED)
    if awaited:
        held = {id for (id,) in await tx.all("settle_awaited", ids=tx.encode_ids(awaited))}
        await tx.run("nudge_settled", ids=tx.encode_ids(sorted(held)))
        await tx.run("keep_nothing", ids=tx.encode_ids(awaited), now=tx.now)


async def complete_alone(tx: SqliteTransaction, item: Completion) -> Answer:
    (answer,) = await complete_all(tx, [item])
    return answer


async def answer_completed(
    tx: SqliteTransaction, item: Completion, done: set[tuple[int, int]]
) -> Answer:
    """Answers DONE once per lock; a repeat in the same batch is ALREADY_DONE."""
    lock = (item.id, item.fence)
    if lock in done:
        done.discard(lock)
        return DONE
    return await explain(tx, item.id, item.fence, Verb.COMPLETE)


async def keep_results(tx: SqliteTransaction, items: Iterable[Completion]) -> None:
    for item in items:
        if item.result is not None:
            await keep_result(tx, item)


async def extend_all(tx: SqliteTransaction, items: Sequence[Extension]) -> list[Answer]:
    return [await extend_one(tx, item) for item in items]


async def find_any_ready(tx: SqliteTransaction, queue_ids: Collection[int]) -> bool:
    for queue_id in queue_ids:
        if await tx.one("peek", queue_id=queue_id) is not None:
            return True
    return False


async def find_any_of_types(tx: SqliteTransaction, queue_id: int, types: Sequence[str]) -> bool:
    if not types:
        return await find_any_ready(tx, [queue_id])
    for type_ in types:
        if await tx.one("peek_type", queue_id=queue_id, type=type_) is not None:
            return True
    return False
