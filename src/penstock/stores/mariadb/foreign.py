"""In the open transaction of a caller's own connection to MariaDB."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.errors import InvalidInput, StoreBusy, StoreError
from penstock.stores.mariadb.address import MariaDsn
from penstock.stores.mariadb.callers import MariaDriverConnection
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.transaction import Guarded
from penstock.stores.mariadb.trouble import CONFLICT_ERRORS
from penstock.stores.sql import foreign, locking
from penstock.stores.sql.foreign import ELSEWHERE
from penstock.ticket import Entry, Published

# No such table, no database chosen.
ABSENT = (1146, 1046)
# A caller's snapshot may be older than what others did: these look at what is there now.
CURRENT = frozenset({"dedup_seen", "head", "head_of", "first_in_line"})


class MariaCallerTransaction(foreign.CallerTransaction[MariaDriverConnection], Guarded):
    __slots__ = ()

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        text = fill_statement(statement, **values)
        if statement not in CURRENT:
            return await self.caller.ask(text)
        if statement == "dedup_seen":
            # A row that is not there could only be locked with its neighbours.
            await self.caller.ask(fill_statement("dedup_place", **values))
        return await self.caller.ask(f"{text} FOR UPDATE")

    async def publish_plain(self, entries: Sequence[Entry]) -> list[Published]:
        return await locking.publish_each(self, entries)


@asynccontextmanager
async def enter_transaction(
    caller: MariaDriverConnection, address: MariaDsn, seal: str
) -> AsyncIterator[MariaCallerTransaction]:
    try:
        async with foreign.savepoint(caller):
            yield await check_and_enter(caller, address, seal)
    except caller.errors as error:
        number = error.args[0] if error.args else None
        if number in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        if number in CONFLICT_ERRORS:
            raise StoreBusy(
                f"somebody did the same meanwhile; roll back, try again: {error}"
            ) from error
        raise StoreError(f"the caller's connection: {error}") from error


async def check_and_enter(
    caller: MariaDriverConnection, address: MariaDsn, seal: str
) -> MariaCallerTransaction:
    found = await caller.ask(fill_statement("fact", name="secret"))
    if found != [(seal,)]:
        raise InvalidInput(ELSEWHERE)
    await caller.ask(fill_statement("enter"))
    ((now,),) = await caller.ask(f"SELECT {address.moment}")
    return MariaCallerTransaction(caller, now)
