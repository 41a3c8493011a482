"""One connection to the server: several statements travel as one packet."""

import asyncio
import os
from typing import Any, NamedTuple

from penstock.errors import InvalidInput, OutcomeUnknown, PenstockError, StoreUnreachable
from penstock.stores import pool
from penstock.stores.mariadb.errors import ERRORS, is_connection_gone, is_read_only

# Every call has an end, whatever became of the server.
DEADLINE = 5.0


class StatementOutcome(NamedTuple):
    """What one statement answered: its rows, if it has any, or how many it changed, and the first
    number it gave to a new one."""

    rows: tuple[Any, ...] | None
    changed: int
    first: int

    @property
    def listed(self) -> list[Any]:
        return list(self.rows or ())


class MariaConnection:
    """A forked child has copies of its parent's sessions, and leaves them alone."""

    def __init__(self, connection: Any, most: int = 16 * 1024 * 1024) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.ended = False
        # How long a packet may be.
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
        """Of the last statement that has any."""
        return last_rows(await self.send(*statements))

    def is_closed(self) -> bool:
        """By us, or, as far as we have heard, by the server."""
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
        # Of one that may only read, another server may write by now: a new session finds it.
        if (
            is_connection_gone(error)
            or is_read_only(error)
            or isinstance(error, OutcomeUnknown | StoreUnreachable)
        ):
            return False
        return isinstance(error, (PenstockError, *ERRORS))

    async def leave(self, connection: MariaConnection) -> None:
        await connection.leave()
