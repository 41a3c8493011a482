"""Wakes consumers of other processes with LISTEN and NOTIFY."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import asyncpg

from penstock.errors import StoreError
from penstock.stores import notifier
from penstock.stores.postgres.connection import CALL_TIMEOUT_S
from penstock.stores.postgres.errors import ERRORS
from penstock.stores.postgres.transaction import SQL

CHANNEL = "penstock"


class PostgresNotifier(notifier.Notifier):
    """Uses its own connection, opened on first use.

    NOTIFY runs after the commit: inside a transaction it serializes commits.
    """

    errors = (*ERRORS, StoreError)

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], *, listens: bool = True
    ) -> None:
        super().__init__()
        self.connect = connect
        # LISTEN does not work behind a pooler.
        self.listens = listens
        self.connection: asyncpg.Connection | None = None
        self.opening = asyncio.Lock()
        # Notices per queue; None counts those for all queues.
        self.rung: Counter[int | None] = Counter()

    def wake(self, queue_ids: Iterable[int] | None) -> None:
        woken = None if queue_ids is None else list(queue_ids)
        self.rung.update([None] if woken is None else woken)
        super().wake(woken)

    def heard_of(self, queue_id: int) -> int:
        """Returns a number that changes with each notice for the queue."""
        return self.rung[queue_id] + self.rung[None]

    async def send(self, notice: str) -> None:
        connection = await self.open_connection()
        async with self.opening:
            text, _ = SQL["notify"]
            await connection.execute(text, CHANNEL, notice, timeout=CALL_TIMEOUT_S)

    def listen(self) -> None:
        if self.listens:
            super().listen()

    async def listen_once(self) -> None:
        gone = asyncio.Event()
        connection = await self.open_connection()
        connection.add_termination_listener(lambda _: gone.set())
        async with self.opening:
            await connection.add_listener(CHANNEL, lambda *said: self.handle_notice(str(said[-1])))
        self.hears = True
        # Earlier notices were missed, so wake all waiters.
        self.wake(None)
        await gone.wait()

    async def open_connection(self) -> asyncpg.Connection:
        async with self.opening:
            if self.connection is None or self.connection.is_closed():
                self.connection = await self.connect()
            return self.connection

    async def drop(self) -> None:
        if self.connection is not None:
            self.connection.terminate()
