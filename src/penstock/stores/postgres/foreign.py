"""Publishing and completing in the open transaction of a caller's own connection."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.errors import InvalidInput, LockLost, StoreBusy, StoreError
from penstock.message import Moment
from penstock.stores.postgres import publish
from penstock.stores.postgres.callers import Caller
from penstock.stores.postgres.transaction import lock_name
from penstock.stores.postgres.wake import CHANNEL
from penstock.stores.sql import settle as settling
from penstock.stores.sql import transaction
from penstock.stores.sql.transaction import Lockable
from penstock.ticket import AnswerKind, Completion, Entry, Published

# No such table, schema or function.
ABSENT = ("42P01", "3F000", "42883")


class ForeignTransaction(transaction.Transaction):
    foreign = True
    __slots__ = ("caller",)

    def __init__(self, caller: Caller, now: Moment) -> None:
        super().__init__(now)
        self.caller = caller

    async def run(self, statement: str, /, **values: Any) -> int:
        return len(await self.caller.ask(statement, values))

    async def one(self, statement: str, /, **values: Any) -> Any:
        rows = await self.caller.ask(statement, values)
        return rows[0] if rows else None

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.caller.ask(statement, values)

    async def lock(self, *what: Lockable) -> None:
        """Nobody waits in a transaction that is not ours to end."""
        rows = await self.all("try_lock", all=[lock_name(each) for each in what])
        if not all(free for (free,) in rows):
            raise StoreBusy("somebody's open transaction is about to decide the same; try again")


async def publish_on(
    caller: Caller, secret: str, entries: Sequence[Entry], tell: Callable[[set[int]], None] | None
) -> list[Published]:
    """`tell`: whom to tell of the queues once it is committed; None if nobody is to be told."""
    async with inside(caller, secret) as tx:
        outcomes = await publish.publish_all(tx, entries)
    woken = tx.woken
    if woken and tell is not None:
        if caller.on_commit is not None:
            caller.on_commit(lambda: tell(woken))
        else:
            await caller.ask("notify", {"channel": CHANNEL, "queues": ",".join(map(str, woken))})
    return outcomes


async def complete_on(caller: Caller, secret: str, item: Completion) -> None:
    if caller.alone:
        raise InvalidInput("begin a transaction: the completion is one with what is in it")
    async with inside(caller, secret) as tx:
        answer = await settling.complete_one(tx, item)
        if answer.kind is not AnswerKind.DONE:
            raise LockLost(f"message {item.id}: its lock was lost; roll back what you did")


@asynccontextmanager
async def inside(caller: Caller, secret: str) -> AsyncIterator[ForeignTransaction]:
    """A savepoint, so that a failure leaves the caller's transaction as it was."""
    begin, undo, end = (
        ("BEGIN", "ROLLBACK", "COMMIT")
        if caller.alone
        else ("SAVEPOINT penstock", "ROLLBACK TO penstock", "RELEASE penstock")
    )
    try:
        await caller.say(begin)
        try:
            ((now, found),) = await caller.ask("here", {})
            if found != secret:
                raise InvalidInput("the connection is to another database than the queue's")
            yield ForeignTransaction(caller, now)
        except BaseException:
            await caller.say(undo)
            raise
        await caller.say(end)
    except caller.errors as error:
        if getattr(error, "sqlstate", None) in ABSENT:
            raise InvalidInput("the connection is to another database than the queue's") from None
        raise StoreError(f"the caller's connection: {error}") from error
