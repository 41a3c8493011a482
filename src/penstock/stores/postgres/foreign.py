"""In the open transaction of a caller's own connection to PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.errors import InvalidInput, StoreError
from penstock.stores.postgres.callers import Caller
from penstock.stores.postgres.transaction import Locks
from penstock.stores.postgres.wake import CHANNEL
from penstock.stores.sql import foreign
from penstock.stores.sql.foreign import ELSEWHERE, Tell

# No such table, schema or function.
ABSENT = ("42P01", "3F000", "42883")


class ForeignTransaction(foreign.ForeignTransaction[Caller], Locks):
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
async def inside(caller: Caller, seal: str) -> AsyncIterator[ForeignTransaction]:
    try:
        async with foreign.apart(caller):
            ((now, found),) = await caller.ask("here", {})
            if found != seal:
                raise InvalidInput(ELSEWHERE)
            yield ForeignTransaction(caller, now)
    except caller.errors as error:
        if getattr(error, "sqlstate", None) in ABSENT:
            raise InvalidInput(ELSEWHERE) from None
        raise StoreError(f"the caller's connection: {error}") from error
