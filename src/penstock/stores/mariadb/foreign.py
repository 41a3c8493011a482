"""Publishing and completing in the open transaction of a caller's own connection."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.errors import InvalidInput, LockLost, StoreBusy, StoreError
from penstock.message import Moment
from penstock.stores.mariadb.address import Address
from penstock.stores.mariadb.callers import Caller
from penstock.stores.mariadb.statement import text_of
from penstock.stores.mariadb.transaction import Guarded
from penstock.stores.mariadb.trouble import AGAIN
from penstock.stores.sql import locking
from penstock.stores.sql import settle as settling
from penstock.stores.sql.transaction import Lockable
from penstock.ticket import AnswerKind, Completion, Entry, Published

# No such table, no database chosen.
ABSENT = (1146, 1046)
# A caller's snapshot may be older than what others did: these look at what is there now.
CURRENT = frozenset({"dedup_seen", "head", "head_of", "first_in_line"})
ELSEWHERE = "the connection is to another database than the queue's"


class ForeignTransaction(Guarded):
    foreign = True
    __slots__ = ("caller",)

    def __init__(self, caller: Caller, now: Moment) -> None:
        super().__init__(now)
        self.caller = caller

    async def run(self, statement: str, /, **values: Any) -> int:
        return len(await self.all(statement, **values))

    async def one(self, statement: str, /, **values: Any) -> Any:
        rows = await self.all(statement, **values)
        return rows[0] if rows else None

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        text = text_of(statement, **values)
        if statement not in CURRENT:
            return await self.caller.ask(text)
        if statement == "dedup_seen":
            # A row that is not there could only be locked with its neighbours.
            await self.caller.ask(text_of("dedup_place", **values))
        return await self.caller.ask(f"{text} FOR UPDATE")

    async def lock(self, *what: Lockable) -> None:
        """Nobody waits in a transaction that is not ours to end."""
        if not all(await self.try_lock(what)):
            raise StoreBusy("somebody's open transaction is about to decide the same; try again")

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        return await locking.publish_each(self, entries)

    async def save(self) -> None:
        await self.caller.ask("SAVEPOINT penstock_atomic")

    async def undo(self) -> None:
        await self.caller.ask("ROLLBACK TO penstock_atomic")


async def publish_on(
    caller: Caller,
    address: Address,
    secret: str,
    entries: Sequence[Entry],
    tell: Callable[[set[int]], None] | None,
) -> list[Published]:
    """`tell`: whom to tell of the queues once it is committed; None if nobody is to be told."""
    async with inside(caller, address, secret) as tx:
        outcomes = await locking.publish_all(tx, entries)
    woken = tx.woken
    # Without a word of the commit, whoever waits looks by itself soon.
    if woken and tell is not None and caller.on_commit is not None:
        caller.on_commit(lambda: tell(woken))
    return outcomes


async def complete_on(caller: Caller, address: Address, secret: str, item: Completion) -> None:
    if caller.alone:
        raise InvalidInput("begin a transaction: the completion is one with what is in it")
    async with inside(caller, address, secret) as tx:
        answer = await settling.complete_one(tx, item)
        if answer.kind is not AnswerKind.DONE:
            raise LockLost(f"message {item.id}: its lock was lost; roll back what you did")


@asynccontextmanager
async def inside(
    caller: Caller, address: Address, secret: str
) -> AsyncIterator[ForeignTransaction]:
    """A savepoint, so that a failure leaves the caller's transaction as it was."""
    begin, undo, end = (
        ("START TRANSACTION", "ROLLBACK", "COMMIT")
        if caller.alone
        else ("SAVEPOINT penstock", "ROLLBACK TO penstock", "RELEASE SAVEPOINT penstock")
    )
    try:
        await caller.ask(begin)
        try:
            yield await entered(caller, address, secret)
        except BaseException:
            await caller.ask(undo)
            raise
        await caller.ask(end)
    except caller.errors as error:
        number = error.args[0] if error.args else None
        if number in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        if number in AGAIN:
            raise StoreBusy(
                f"somebody did the same meanwhile; roll back, try again: {error}"
            ) from error
        raise StoreError(f"the caller's connection: {error}") from error


async def entered(caller: Caller, address: Address, secret: str) -> ForeignTransaction:
    found = await caller.ask(text_of("secret"))
    if found != [(secret,)]:
        raise InvalidInput(ELSEWHERE)
    await caller.ask(text_of("enter"))
    ((now,),) = await caller.ask(f"SELECT {address.moment}")
    return ForeignTransaction(caller, now)
