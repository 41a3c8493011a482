"""In the open transaction of a caller's own connection to PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.errors import InvalidInput, StoreError
from penstock.stores.postgres.callers import PostgresDriverConnection
from penstock.stores.postgres.transaction import Locks
from penstock.stores.postgres.wake import CHANNEL
from penstock.stores.sql import foreign
from penstock.stores.sql.foreign import ELSEWHERE, Tell

# No such table, schema or function.
ABSENT = ("42P01", "3F000", "42883")


class PostgresCallerTransaction(foreign.CallerTransaction[PostgresDriverConnection], Locks):
    __slots__ = ()

    async def all(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.caller.ask(statement, values)

    async def tell_at_commit(self, tell: Tell) -> None:
        """The server tells, where nobody else does."""
        if self.caller.on_commit is not None:
            await super().tell_at_commit(tell)
        else:
            queues = ",".join(map(str, self.woken))
            await self.caller.ask("notify", {"channel": CHANNEL, "queues": queues})


@asynccontextmanager
async def enter_transaction(
    caller: PostgresDriverConnection, seal: str
) -> AsyncIterator[PostgresCallerTransaction]:
    try:
        async with foreign.savepoint(caller):
            ((now, found),) = await caller.ask("here", {})
            if found != seal:
                raise InvalidInput(ELSEWHERE)
            yield PostgresCallerTransaction(caller, now)
    except caller.errors as error:
        if getattr(error, "sqlstate", None) in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        raise StoreError(f"the caller's connection: {error}") from error
