"""Group commit: combines concurrent calls into batches, without a timer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from penstock.errors import Busy, OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.model.store_types import (
    Answer,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Move,
    Published,
    are_plain,
)
from penstock.store import StoreHotPath

# Retries of a publish that was blocked by another transaction, or not answered.
RETRY_ATTEMPTS, RETRY_DELAY_S = 20, 0.1
Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Callable[[Sequence[Item]], Awaitable[list[Result]]]


class Group(Generic[Item, Result]):
    """The items of one caller, and the future it waits for."""

    __slots__ = ("future", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

    def answer(self, results: list[Result]) -> None:
        if not self.future.done():
            self.future.set_result(results)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batcher(Generic[Item, Result]):
    """Keeps one call in flight. Items that arrive meanwhile go in the next call.

    A lone caller costs no task and no extra loop iteration. A caller's items stay together.
    """

    def __init__(self, call: Call[Item, Result], max_items: int) -> None:
        self.call = call
        self.max_items = max_items
        self.waiting: list[Group[Item, Result]] = []
        self.draining: asyncio.Task[None] | None = None
        self.busy = False

    async def add(self, items: Sequence[Item]) -> list[Result]:
        if self.busy:
            group: Group[Item, Result] = Group(items)
            self.waiting.append(group)
            return await group.future
        self.busy = True
        try:
            return await self.call(items)
        finally:
            if self.waiting:
                self.draining = asyncio.ensure_future(self.drain())
            else:
                self.busy = False

    async def drain(self) -> None:
        try:
            while groups := self.take():
                await self.run(groups)
                # Lets callers that were just answered join the next batch.
                await asyncio.sleep(0)
        finally:
            self.busy = False

    def take(self) -> list[Group[Item, Result]]:
        """Takes whole groups from the front, up to `max_items` items but at least one group.

        Cancelled groups are dropped: a closing loop must not write for them.
        """
        waiting = [group for group in self.waiting if not group.future.done()]
        count = end = 0
        for group in waiting:
            count += len(group.items)
            if end and count > self.max_items:
                break
            end += 1
        self.waiting = waiting[end:]
        return waiting[:end]

    async def run(self, groups: list[Group[Item, Result]]) -> None:
        try:
            results = await self.call([item for group in groups for item in group.items])
        except BaseException as error:  # noqa: BLE001 - handed to the callers
            await self.run_one_by_one(groups, error)
            return
        start = 0
        for group in groups:
            end = start + len(group.items)
            group.answer(results[start:end])
            start = end

    async def run_one_by_one(self, groups: list[Group[Item, Result]], error: BaseException) -> None:
        """Retries groups one by one, so that one bad item fails alone.

        A failing store would only fail again, so its errors go to all groups.
        """
        if len(groups) == 1 or isinstance(error, StoreError | asyncio.CancelledError):
            for group in groups:
                group.fail(error)
            return
        for group in groups:
            await self.run([group])


class GroupCommit:
    """Batches the hot calls of a store, each kind separately."""

    def __init__(self, store: StoreHotPath, max_batch: int = 1_000) -> None:
        self.store = store
        self._enqueue: Batcher[Entry, Published] = Batcher(store.enqueue, max_batch)
        # Entries that read stored state are slower; plain ones must not wait for them.
        self._enqueue_checked: Batcher[Entry, Published] = Batcher(store.enqueue, max_batch)
        self._complete: Batcher[Completion, Answer] = Batcher(store.complete, max_batch)
        self._extend: Batcher[Extension, Answer] = Batcher(store.extend, max_batch)
        self._leases: Batcher[Lock, Lease | None] = Batcher(store.leases, max_batch)
        self._settle: Batcher[Move, Answer] = Batcher(store.settle, max_batch)

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if atomic:
            return await self.store.enqueue(entries, atomic=True)
        if are_plain(entries):
            return await self._enqueue.add(entries)
        try:
            outcomes = await self._enqueue_checked.add(entries)
        except OutcomeUnknown:
            if any(entry.dedup is None for entry in entries):
                raise
            return await self._retry_unanswered(entries)
        return outcomes if len(entries) > 1 else await self._retry_busy(entries, outcomes)

    async def _retry_busy(
        self, entries: Sequence[Entry], outcomes: list[Published]
    ) -> list[Published]:
        """Retries while another transaction holds the same key, outside of the batch."""
        for _ in range(RETRY_ATTEMPTS):
            if outcomes[0].code != Busy.code:
                break
            await asyncio.sleep(RETRY_DELAY_S)
            outcomes = await self.store.enqueue(entries)
        return outcomes

    async def _retry_unanswered(self, entries: Sequence[Entry]) -> list[Published]:
        """Retries entries with dedup keys, which makes a repeated write harmless."""
        for _ in range(RETRY_ATTEMPTS):
            await asyncio.sleep(RETRY_DELAY_S)
            with suppress(OutcomeUnknown, StoreUnreachable, StoreBusy):
                return await self.store.enqueue(entries)
        raise OutcomeUnknown("the store did not answer; the message may have been published")

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        return await self._complete.add(items)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        return await self._extend.add(items)

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        return await self._leases.add(locks)

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        return await self._settle.add(moves)
