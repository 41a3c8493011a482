"""Publishes and settles beside concurrent writers: as sets first, then the rest one by one.

A batch never waits for a row that another transaction has locked. The items left over share the
retries of their call.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, ParamSpec, TypeVar

from penstock.errors import OutcomeUnknown, StoreBusy, StoreUnreachable
from penstock.model.activity import Heading
from penstock.model.changes import Change, Changed
from penstock.model.documents import acting
from penstock.model.message import Flag, Moment, Verb
from penstock.model.store_types import (
    DONE,
    Answer,
    AnswerKind,
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
from penstock.model.uniform_batch import are_plain, find_uniform
from penstock.model.waiting import StepLog, StepSave, StepSaved, StoredSignal
from penstock.retry_policies import DEAD_LETTER, LOCKED, Retries
from penstock.stores.sql import messages, publish, records, steps, upkeep, waiting
from penstock.stores.sql import settle as settling
from penstock.stores.sql.advance import advance
from penstock.stores.sql.caller_verbs import CallerVerbs
from penstock.stores.sql.database import ServerDatabase, TransactionConflict, Work
from penstock.stores.sql.dialect import Locked, ServerDialect
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.publish import StoreTransaction
from penstock.stores.sql.settle import BUSY

P = ParamSpec("P")
Item = TypeVar("Item")


class ServerVerbs:
    def __init__(
        self, database: ServerDatabase[Any, StoreTransaction], dialect: ServerDialect
    ) -> None:
        self.database = database
        self.dialect = dialect
        self.signal_held = dialect.signal_held
        callers = CallerVerbs(database, dialect)
        self.enqueue_on, self.aenqueue_on = callers.enqueue_on, callers.aenqueue_on
        self.complete_on, self.acomplete_on = callers.complete_on, callers.acomplete_on
        self.save_step_on, self.asave_step_on = callers.save_step_on, callers.asave_step_on
        self.advance_on, self.aadvance_on = callers.advance_on, callers.aadvance_on

    # Producers.

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        """Publishes in one transaction. The caller retries entries that answer BUSY."""
        if not entries:
            return []
        entries = find_uniform(entries)
        if are_plain(entries):
            return await self.dialect.enqueue_plain(entries)
        if atomic:
            return await self.database.write(waiting.publish_holding, entries)
        if entries[0].unit is not None:
            outcomes = await self.dialect.enqueue_fanouts(entries)
            if outcomes is not None:
                return outcomes
        try:
            return await self.database.attempt(publish.publish_all, entries)
        except TransactionConflict:
            return [publish.BUSY] * len(entries)

    def in_transaction(self, connection: object) -> bool:
        """Always False: an open transaction on a server blocks no other writer."""
        return False

    # Consumers.

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        if not items:
            return []
        if any(item.seen for item in items):
            return await self.complete_seeing(items)
        try:
            rows = await self.dialect.complete_set(items)
        except StoreBusy:
            rows = await self.run_free(self.dialect.complete_set, items)
        if len(rows) == len(items):
            return [DONE] * len(rows)
        retries = LOCKED.begin()
        rows += await self.complete_keyed(items, rows, retries)
        answers = answer_done(items, rows)
        return await self.settle_rest(items, answers, settling.complete_one, retries)

    async def complete_seeing(self, items: Sequence[Completion]) -> list[Answer]:
        """Completes those that record keys one by one, each with its keys."""
        plain = [item for item in items if not item.seen]
        answers = iter(await self.complete(plain))
        known = [None if item.seen else next(answers) for item in items]
        return await self.settle_rest(items, known, settling.complete_one, LOCKED.begin())

    async def complete_keyed(
        self, batch: Sequence[Completion], rows: list[Any], retries: Retries
    ) -> list[Any]:
        """Returns the locks completed. Retries items whose ordering key is in use."""
        done: list[Any] = []
        answers = answer_done(batch, rows)
        items = [item for item, answer in zip(batch, answers, strict=True) if answer is None]
        # If a batch completes one lease several times, the first completion counts.
        first = {(item.id, item.fence): item for item in reversed(items)}
        left: Sequence[Completion] = list(first.values())
        while True:
            try:
                rows, left = await self.database.attempt(publish.complete_keyed, left)
            except TransactionConflict:
                rows = []
            except StoreBusy:
                return done
            except StoreUnreachable as error:
                raise OutcomeUnknown(str(error)) from error
            done += rows
            if not left or not await retries.again():
                return done

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        if not items:
            return []
        try:
            rows = await self.dialect.extend_set(items)
        except StoreBusy:
            rows = await self.run_free(self.dialect.extend_set, items)
        answers = answer_extensions(items, rows)
        done = [answer for answer in answers if answer is not None]
        if len(done) == len(items):
            return done
        return await self.settle_rest(items, answers, settling.explain_refusal, LOCKED.begin())

    async def run_free(
        self, run: Callable[[Sequence[Locked]], Awaitable[list[Any]]], items: Sequence[Locked]
    ) -> list[Any]:
        """Runs the set without the rows that another transaction has locked."""
        try:
            free = await self.dialect.free_among(items)
            return await run(free) if free else []
        except StoreBusy:
            return []

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        rows = await self.dialect.fetch_leases(locks) if locks else []
        found = {(row[0], row[1]): settling.make_lease(row[:-1], row[-1]) for row in rows}
        return [found.get((lock.id, lock.fence)) for lock in locks]

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        """Explains in a write transaction, which sees rows committed since it began."""
        return await self.database.write(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        # Several moves of one lease run in order, so that each sees the one before it.
        times = Counter(move.id for move in moves)
        together = [move for move in moves if times[move.id] == 1 and can_run_in_set(move)]
        rows = await self.dialect.settle_set(together) if together else []
        answers = answer_moved(moves, rows)
        done = [answer for answer in answers if answer is not None]
        if len(done) == len(moves):
            return done
        return await self.settle_rest(moves, answers, settling.settle_one, LOCKED.begin())

    async def settle_rest(
        self,
        items: Sequence[Item],
        answers: list[Answer | None],
        work: Work[StoreTransaction, [Item], Answer],
        retries: Retries,
    ) -> list[Answer]:
        """Settles the items without an answer one by one."""
        return [
            answer or await self.retry_locked(retries, work, item)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def retry_locked(
        self,
        retries: Retries,
        work: Work[StoreTransaction, P, Answer],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer:
        """Answers BUSY for this item alone if its row stays locked."""
        while True:
            try:
                answer = await self.database.attempt(work, *args, **kwargs)
            except TransactionConflict:
                answer = BUSY
            except StoreBusy:
                # It has waited for the lock already.
                return BUSY
            except StoreUnreachable as error:
                raise OutcomeUnknown(str(error)) from error
            if answer.kind is not AnswerKind.BUSY or not await retries.again():
                return answer

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        return bool(await self.database.fetch("any_ready", {"queues": list(queue_ids)}))

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        if not types:
            return await self.any_ready([queue_id])
        for type_ in types:
            if await self.database.fetch("peek_type", {"queue_id": queue_id, "type": type_}):
                return True
        return False

    publish_inside = staticmethod(publish.publish_locked)

    async def save_steps(self, items: Sequence[StepSave]) -> list[StepSaved]:
        """Stores steps. A single one that publishes nothing is one statement, if it can be."""
        if len(items) == 1 and items[0].entry is None:
            step = await self.dialect.save_step(items[0])
            if step is not None:
                return [StepSaved(AnswerKind.DONE, step)]
        return await self.database.write(steps.save_steps, items, self.publish_inside)

    async def steps(self, id: int) -> StepLog:
        rows = await self.database.fetch("steps_dated", {"id": id})
        now = rows[0][0] if rows else await self.dialect.now()
        return steps.make_log(id, [row[1:] for row in rows], now)

    async def signals(self, id: int) -> list[StoredSignal]:
        return steps.make_signals(await self.database.fetch("signals", {"id": id}))

    async def headings(self, ids: Sequence[int]) -> dict[int, Heading]:
        if not ids:
            return {}
        rows = await self.database.fetch("headings", {"ids": sorted(ids)})
        return records.make_headings(rows)

    async def look_when(self) -> tuple[Moment, bool, Moment | None]:
        """Returns the time, whether a message was nudged, and when the next hold is due."""
        ((now, nudged, next_at),) = await self.database.fetch("look_when")
        return now, bool(nudged), next_at

    # Agents and operators.

    async def expired_leases(self, limit: int) -> Sweep:
        rows = await self.database.fetch("leases_expired", {"limit": limit})
        if not rows:
            return Sweep(await self.dialect.now(), [])
        found = await self.leases([Lock(id, fence) for id, fence, _ in rows])
        return Sweep(rows[0][2], [lease for lease in found if lease is not None])

    async def promote(self, limit: int) -> Promoted:
        ((now, next_at),) = await self.database.fetch("due_when")
        if next_at is None or next_at > now:
            return Promoted(0, now, next_at)
        queue_ids = await self.dialect.promote_set(limit)
        self.database.notifier.notify(set(queue_ids))
        if len(queue_ids) == limit:
            ((now, next_at),) = await self.database.fetch("due_when")
            return Promoted(limit, now, next_at)
        rest = await self.database.write(upkeep.promote, limit - len(queue_ids))
        return Promoted(len(queue_ids) + rest.count, rest.now, rest.next_at)

    async def directory_version(self) -> int:
        """Runs every second, so it is one statement without a transaction."""
        version: int = (await self.database.fetch("number", {"name": "directory"}))[0][0]
        return version

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        retries, work = LOCKED.begin(), with_audit(messages.cancel_one)
        return [await self.retry_locked(retries, work, id, force) for id in ids]

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        answers = await self.database.write(with_audit(messages.redrive), ids)
        return await self.retry_dead(ids, answers, with_audit(messages.redrive_one))

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        answers = await self.database.write(with_audit(messages.purge_dead), ids)
        return await self.retry_dead(ids, answers, with_audit(messages.purge_one))

    async def retry_dead(
        self, ids: Sequence[int], answers: list[Answer], work: Work[StoreTransaction, [int], Answer]
    ) -> list[Answer]:
        """Retries busy items one by one, so that a locked one holds up no other."""
        retries = (DEAD_LETTER if len(ids) == 1 else LOCKED).begin()
        return [
            await self.retry_locked(retries, work, id) if answer.kind is AnswerKind.BUSY else answer
            for id, answer in zip(ids, answers, strict=True)
        ]

    async def advance(self, change: Change) -> Changed | None:
        return await self.database.write(advance, change, waiting.publish_holding, acting.get())


def can_run_in_set(move: Move) -> bool:
    """True if the move frees no key and notifies no one."""
    return not (move.frees and move.seen_flags & Flag.ENDING)


def answer_done(items: Sequence[Completion], rows: list[Any]) -> list[Answer | None]:
    """Answers DONE once per lock; None for items the set left out."""
    locks = {tuple(row) for row in rows}
    return [DONE if take(locks, (item.id, item.fence)) else None for item in items]


def answer_moved(moves: Sequence[Move], rows: list[Any]) -> list[Answer | None]:
    ids = {row[0] for row in rows}
    return [Answer(AnswerKind.DONE, move.state) if take(ids, move.id) else None for move in moves]


def answer_extensions(items: Sequence[Extension], rows: list[Any]) -> list[Answer | None]:
    found = {
        (id, fence): settling.answer_extended(until, flags) for id, fence, until, flags in rows
    }
    return [found.get((item.id, item.fence)) for item in items]


def take(among: set[Any], one: Any) -> bool:
    if one not in among:
        return False
    among.remove(one)
    return True
