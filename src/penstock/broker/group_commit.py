"""Group commit: combines concurrent calls into batches, without a timer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import compress
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
)
from penstock.model.uniform_batch import are_plain, join_entries
from penstock.retry_policies import PUBLISH, Retries
from penstock.store import StoreHotPath

LOCKED = Published(0, code=Busy.code)
Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Callable[[Sequence[Item]], Awaitable[list[Result]]]
Join = Callable[[Sequence[Sequence[Item]]], Sequence[Item]]


def join_items(groups: Sequence[Sequence[Item]]) -> Sequence[Item]:
    return [item for group in groups for item in group]


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

    def __init__(
        self, call: Call[Item, Result], max_items: int, join: Join[Item] = join_items
    ) -> None:
        self.call = call
        self.max_items = max_items
        self.join = join
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
            results = await self.call(self.join([group.items for group in groups]))
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
        self._plain: Batcher[Entry, Published] = Batcher(store.enqueue, max_batch, join_entries)
        # Entries that read stored state are slower; plain ones must not wait for them.
        self._checked: Batcher[Entry, Published] = Batcher(store.enqueue, max_batch)
        complete: Batcher[Completion, Answer] = Batcher(store.complete, max_batch)
        extend: Batcher[Extension, Answer] = Batcher(store.extend, max_batch)
        leases: Batcher[Lock, Lease | None] = Batcher(store.leases, max_batch)
        settle: Batcher[Move, Answer] = Batcher(store.settle, max_batch)
        self.complete, self.extend = complete.add, extend.add
        self.leases, self.settle = leases.add, settle.add

    def enqueue(
        self, entries: Sequence[Entry], *, atomic: bool = False
    ) -> Awaitable[list[Published]]:
        """Returns the call to await. It is a plain function, so that it costs no coroutine."""
        if atomic:
            return self.store.enqueue(entries, atomic=True)
        if are_plain(entries):
            return self._plain.add(entries)
        return self._enqueue_checked(entries)

    async def _enqueue_checked(self, entries: Sequence[Entry]) -> list[Published]:
        """Retries entries whose keys are locked, and those with dedup keys after a lost answer.

        Retries do not join batches, so that others do not wait for them.
        """
        pending = PendingPublish(entries)
        enqueue: Call[Entry, Published] = self._checked.add
        retries: Retries | None = None
        while True:
            try:
                pending.keep_locked(await enqueue(pending.entries))
            except (OutcomeUnknown, StoreUnreachable, StoreBusy) as error:
                if not pending.can_retry(error, first=retries is None):
                    raise
            if not pending.entries:
                return pending.outcomes
            retries, enqueue = retries or PUBLISH.begin(), self.store.enqueue
            if not await retries.again():
                return pending.give_up()


class PendingPublish:
    """The entries of one publish that have no final answer yet."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.outcomes = [LOCKED] * len(entries)
        self.places: Sequence[int] = range(len(entries))
        self.unknown = False

    def keep_locked(self, written: list[Published]) -> None:
        """Stores the outcomes, and keeps the entries that other transactions lock."""
        self.unknown = False
        locked = [each.code == Busy.code for each in written]
        for place, outcome in zip(self.places, written, strict=True):
            self.outcomes[place] = outcome
        self.places = list(compress(self.places, locked))
        self.entries = list(compress(self.entries, locked))

    def can_retry(self, error: StoreError, *, first: bool) -> bool:
        """True if the error wrote nothing, or dedup keys make it harmless to write again.

        The first error of an unreachable store goes to the caller at once.
        """
        if isinstance(error, OutcomeUnknown):
            self.unknown = True
            return all(entry.dedup is not None for entry in self.entries)
        return not first

    def give_up(self) -> list[Published]:
        if self.unknown:
            raise OutcomeUnknown("the store did not answer; the message may have been published")
        return self.outcomes
