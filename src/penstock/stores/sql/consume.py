"""Settles batches on server stores: as sets first, then the rest one by one."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from penstock.errors import Busy, OutcomeUnknown, StoreBusy, StoreUnreachable
from penstock.model.message import Verb
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
    Published,
)
from penstock.stores.sql import batches, locking, messages
from penstock.stores.sql import settle as settling
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.locking import StoreTransaction
from penstock.stores.sql.settle import BUSY

P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Callable[Concatenate[StoreTransaction, P], Coroutine[Any, Any, T]]
Locked = TypeVar("Locked", Completion, Extension)
# Short locks of other statements are released within these; an open transaction's may not be.
RETRY_ATTEMPTS, RETRY_DELAY_S = 3, 0.01
BUSY_RETRY_ATTEMPTS = 50


class ServerConsume(ABC):
    @abstractmethod
    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @abstractmethod
    async def write_briefly(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a write transaction with a short lock timeout, since others queue behind it."""

    @abstractmethod
    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        """Returns the locks that were completed; raises StoreBusy if a row is locked."""

    @abstractmethod
    async def extend_set(self, items: Sequence[Extension]) -> list[Any]: ...

    @abstractmethod
    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        """Returns a row for each move made, beginning with its id."""

    @abstractmethod
    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]: ...

    @abstractmethod
    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        """Returns the locks whose rows no other transaction has locked."""

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        rows = await self.free_ones(self.complete_set, items)
        if len(rows) == len(items):
            return [DONE] * len(rows)
        left = [
            item
            for item, done in zip(items, batches.answer_done(items, rows), strict=True)
            if not done
        ]
        answers = batches.answer_done(items, rows + await self.complete_keyed(left))
        return [
            answer or await self.retry_locked(settling.complete_one, item)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def complete_keyed(self, items: Sequence[Completion]) -> list[Any]:
        """Returns the locks completed. Retries items whose ordering key is in use."""
        done: list[Any] = []
        # Of several completions of one lease, the first counts.
        first = {(item.id, item.fence): item for item in reversed(items)}
        left: Sequence[Completion] = list(first.values())
        try:
            for look in range(RETRY_ATTEMPTS):
                await asyncio.sleep(RETRY_DELAY_S if look else 0)
                rows, left = await self.write_briefly(locking.complete_keyed, left)
                done += rows
                if not left:
                    break
        except StoreBusy:
            pass
        except StoreUnreachable as error:
            raise OutcomeUnknown(str(error)) from error
        return done

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        rows = await self.free_ones(self.extend_set, items)
        answers = batches.answer_extensions(items, rows)
        return [
            answer or await self.retry_locked(settling.explain_refusal, item.id, item.fence)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def free_ones(
        self, do: Callable[[Sequence[Locked]], Awaitable[list[Any]]], items: Sequence[Locked]
    ) -> list[Any]:
        """Runs the verb as one set; leaves out rows locked by another transaction."""
        if not items:
            return []
        try:
            return await do(items)
        except StoreBusy:
            free = await self.free_among(items)
        return await do(free) if free else []

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        rows = await self.fetch_leases(locks) if locks else []
        found = {(row[0], row[1]): settling.make_lease(row[:-1], row[-1]) for row in rows}
        return [found.get((lock.id, lock.fence)) for lock in locks]

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        return await self.write(settling.explain_all, locks, verbs)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        # Several moves of one lease run in order, so that each sees the one before it.
        times = Counter(move.id for move in moves)
        together = [move for move in moves if times[move.id] == 1 and batches.run_as_set(move)]
        rows = await self.settle_set(together) if together else []
        answers = batches.answer_moved(moves, rows)
        return [
            answer or await self.retry_locked(settling.settle_one, move)
            for move, answer in zip(moves, answers, strict=True)
        ]

    async def cancel(self, ids: Sequence[int], *, force: bool = False) -> list[Answer]:
        return [await self.retry_locked(with_audit(messages.cancel_one), id, force) for id in ids]

    async def redrive(self, ids: Sequence[int]) -> list[Answer]:
        answers = await self.write(with_audit(messages.redrive), ids)
        return await self.each(ids, answers, with_audit(messages.redrive_one))

    async def purge_dead(self, ids: Sequence[int]) -> list[Answer]:
        answers = await self.write(with_audit(messages.purge_dead), ids)
        return await self.each(ids, answers, with_audit(messages.purge_one))

    async def each(
        self, ids: Sequence[int], answers: list[Answer], alone: Work[[int], Answer]
    ) -> list[Answer]:
        """Retries busy items one by one, so that a locked one holds up no other."""
        again = self.retry_busy if len(ids) == 1 else self.retry_locked
        return [
            await again(alone, id) if answer.kind is AnswerKind.BUSY else answer
            for id, answer in zip(ids, answers, strict=True)
        ]

    async def retry_busy(self, work: Work[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
        for _ in range(BUSY_RETRY_ATTEMPTS):
            answer = await self.retry_locked(work, *args, **kwargs)
            if answer.kind is not AnswerKind.BUSY:
                return answer
        return BUSY

    async def replace(self, id: int, entry: Entry) -> Published:
        for _ in range(RETRY_ATTEMPTS * BUSY_RETRY_ATTEMPTS):
            with suppress(Busy):
                return await self.write(with_audit(messages.replace), id, entry)
            await asyncio.sleep(RETRY_DELAY_S)
        return await self.write(with_audit(messages.replace), id, entry)

    async def retry_locked(
        self, work: Work[P, Answer], *args: P.args, **kwargs: P.kwargs
    ) -> Answer:
        """Answers BUSY for this item alone if its row stays locked."""
        try:
            for _ in range(RETRY_ATTEMPTS):
                answer = await self.write_briefly(work, *args, **kwargs)
                if answer.kind is not AnswerKind.BUSY:
                    return answer
                await asyncio.sleep(RETRY_DELAY_S)
        except StoreBusy:
            return BUSY
        except StoreUnreachable as error:
            raise OutcomeUnknown(str(error)) from error
        return BUSY
