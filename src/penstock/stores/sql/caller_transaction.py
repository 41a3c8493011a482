"""Publishes and completes inside the caller's open transaction."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.errors import InvalidInput, LockLost, StoreBusy
from penstock.model.changes import Change, Changed
from penstock.model.message import Moment
from penstock.model.store_types import AnswerKind, Completion, Entry, Published
from penstock.model.waiting import StepSave, StepSaved
from penstock.stores.driver_adapters import DriverConnection
from penstock.stores.sql import publish, steps, waiting
from penstock.stores.sql import settle as settling
from penstock.stores.sql.advance import advance
from penstock.stores.sql.transaction import Lockable

C = TypeVar("C", bound=DriverConnection)
# Called with the queues to wake, after the commit.
Notify: TypeAlias = Callable[[set[int]], None]
ELSEWHERE = "the connection is to another database than the queue"


class CallerTransaction(publish.LockingTransaction, Generic[C]):
    foreign = True
    __slots__ = ("caller",)

    def __init__(self, caller: C, now: Moment) -> None:
        super().__init__(now)
        self.caller = caller

    async def run(self, statement: str, /, **values: Any) -> int:
        return len(await self.all(statement, **values))

    async def one(self, statement: str, /, **values: Any) -> Any:
        rows = await self.all(statement, **values)
        return rows[0] if rows else None

    @abstractmethod
    async def all(self, statement: str, /, **values: Any) -> list[Any]: ...

    async def lock(self, *what: Lockable) -> None:
        """Raises StoreBusy instead of waiting, because the caller controls this transaction."""
        if not all(await self.try_lock(what)):
            raise StoreBusy("the same key is locked by another transaction; try again")

    async def save(self) -> None:
        await self.caller.say("SAVEPOINT penstock_atomic")

    async def undo(self) -> None:
        await self.caller.say("ROLLBACK TO penstock_atomic")

    async def notify_at_commit(self, notify: Notify) -> None:
        """Notifies after the commit if the driver has a hook; otherwise consumers poll."""
        woken = self.woken
        if self.caller.on_commit is not None:
            self.caller.on_commit(lambda: notify(woken))


Inside: TypeAlias = AbstractAsyncContextManager[CallerTransaction[Any]]


async def publish_on(
    inside: Inside, entries: Sequence[Entry], notify: Notify | None
) -> list[Published]:
    """Publishes in the caller's transaction, and notifies waiters unless the callback is None."""
    async with inside as tx:
        outcomes = await waiting.publish_in_caller(tx, entries)
        if tx.woken and notify is not None:
            await tx.notify_at_commit(notify)
    return outcomes


async def complete_on(inside: Inside, item: Completion) -> None:
    async with inside as tx:
        if tx.caller.alone:
            raise InvalidInput("begin a transaction first; the completion commits with it")
        answer = await settling.complete_one(tx, item)
        if answer.kind is not AnswerKind.DONE:
            raise LockLost(f"message {item.id}: its lock was lost; roll back your transaction")


async def save_step_on(inside: Inside, item: StepSave) -> StepSaved:
    async with inside as tx:
        if tx.caller.alone:
            raise InvalidInput("begin a transaction first; the step commits with it")
        return await steps.save_step_inside(tx, item)


async def advance_on(inside: Inside, change: Change, notify: Notify) -> Changed | None:
    """Writes documents and messages in the caller's transaction, if the guards of the change hold.

    The keys stay locked until that ends.
    """
    async with inside as tx:
        if tx.caller.alone:
            raise InvalidInput("begin a transaction first; the workflow commits with it")
        changed = await advance(tx, change, waiting.publish_holding, None)
        if tx.woken:
            await tx.notify_at_commit(notify)
        return changed


@asynccontextmanager
async def savepoint(caller: DriverConnection) -> AsyncIterator[None]:
    """Undoes only our statements on failure, so that the caller's transaction survives."""
    begin, undo, end = (
        ("START TRANSACTION", "ROLLBACK", "COMMIT")
        if caller.alone
        else ("SAVEPOINT penstock", "ROLLBACK TO penstock", "RELEASE SAVEPOINT penstock")
    )
    await caller.say(begin)
    try:
        yield
    except BaseException:
        await caller.say(undo)
        raise
    await caller.say(end)
