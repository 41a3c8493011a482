"""One connection to the server; sends several statements as one packet."""

import asyncio
import os
from typing import Any, NamedTuple

from penstock.errors import InvalidInput, OutcomeUnknown, PenstockError, StoreUnreachable
from penstock.stores import pool
from penstock.stores.mariadb.errors import ERRORS, is_connection_gone, is_read_only

# Time limit of every call, in seconds.
DEADLINE = 5.0


class StatementOutcome(NamedTuple):
    """The result of one statement: its rows, the number of changed rows, and the first new
    AUTO_INCREMENT id."""

    rows: tuple[Any, ...] | None
    changed: int
    first: int

    @property
    def listed(self) -> list[Any]:
        return list(self.rows or ())


class MariaConnection:
    """A connection that a forked child does not close, because its parent still uses it."""

    def __init__(self, connection: Any, most: int = 16 * 1024 * 1024) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.ended = False
        # max_allowed_packet, in bytes.
        self.most = most
        self.deadline: float | None = DEADLINE

    async def send(self, *statements: str) -> list[StatementOutcome]:
        text = ";\n".join(statements).encode()
        if len(text) >= self.most:
            raise InvalidInput(
                f"a request of {len(text)} bytes exceeds the server's max_allowed_packet"
                f" of {self.most} bytes; send smaller batches or raise it"
            )
        async with asyncio.timeout(self.deadline):
            await self.connection.query(text)
            outcomes = [self.read_outcome()]
            while self.connection._result.has_next:
                await self.connection.next_result()
                outcomes.append(self.read_outcome())
        return outcomes

    def read_outcome(self) -> StatementOutcome:
        result = self.connection._result
        return StatementOutcome(result.rows, result.affected_rows, result.insert_id)

    async def rows(self, *statements: str) -> list[Any]:
        """Returns the rows of the last statement that has any."""
        return last_rows(await self.send(*statements))

    def is_closed(self) -> bool:
        """True if we or the server closed it, as far as we know."""
        return self.ended or bool(self.connection._stream_broken)

    def terminate(self) -> None:
        self.ended = True
        if self.process == os.getpid():
            self.connection.close()

    async def leave(self) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self.connection.ensure_closed()
        except (OSError, TimeoutError):
            self.terminate()


def last_rows(outcomes: list[StatementOutcome]) -> list[Any]:
    for outcome in reversed(outcomes):
        if outcome.rows is not None:
            return list(outcome.rows)
    return []


class MariaPool(pool.ConnectionPool[MariaConnection]):
    def is_harmless(self, error: BaseException) -> bool:
        # After a failover another server accepts writes; a new session finds it.
        if (
            is_connection_gone(error)
            or is_read_only(error)
            or isinstance(error, OutcomeUnknown | StoreUnreachable)
        ):
            return False
        return isinstance(error, (PenstockError, *ERRORS))

    async def leave(self, connection: MariaConnection) -> None:
        await connection.leave()
