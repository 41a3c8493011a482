"""Tells other processes of work, and hears of theirs. Only ever a hint: polling is the truth."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import asyncpg

from penstock.errors import StoreError
from penstock.stores.postgres.statement import SQL
from penstock.stores.postgres.transaction import DEADLINE
from penstock.stores.postgres.trouble import ERRORS as DRIVER_ERRORS
from penstock.stores.waiters import Waiters

CHANNEL = "penstock"
ERRORS = (*DRIVER_ERRORS, StoreError)
# The first is told at once, what comes after it together.
PAUSE = 0.005
AFTER_TROUBLE = 1.0
# Queues in one notice, which may have 8,000 bytes.
MOST = 500
# How long a waiter may trust that it would hear.
HEARING, DEAF = 1.0, 0.05


class Wake(Waiters):
    """One connection of its own, opened when there is something to tell or to hear."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], *, listens: bool = True
    ) -> None:
        super().__init__()
        self.connect = connect
        # Behind a pooler nothing would be heard.
        self.listens = listens
        self.connection: asyncpg.Connection | None = None
        self.opening = asyncio.Lock()
        self.news: set[int] = set()
        self.telling: asyncio.Task[None] | None = None
        self.listening: asyncio.Task[None] | None = None
        self.hears = False
        # How often each queue was told of; None for all of them.
        self.rung: Counter[int | None] = Counter()

    def wake(self, queue_ids: Iterable[int] | None) -> None:
        woken = None if queue_ids is None else list(queue_ids)
        self.rung.update([None] if woken is None else woken)
        super().wake(woken)

    def heard_of(self, queue_id: int) -> int:
        """Changes when somebody tells of the queue."""
        return self.rung[queue_id] + self.rung[None]

    @property
    def longest_wait(self) -> float:
        return HEARING if self.hears else DEAF

    def tell(self, queue_ids: Iterable[int]) -> None:
        """After the commit, never in it: a NOTIFY makes commits wait for each other."""
        woken = set(queue_ids)
        if not woken:
            return
        self.wake(woken)
        self.news |= woken
        if self.telling is None:
            self.telling = asyncio.get_running_loop().create_task(self.tell_all())

    async def tell_all(self) -> None:
        try:
            while self.news:
                queues, self.news = sorted(self.news), set()
                for start in range(0, len(queues), MOST):
                    await self.send(",".join(map(str, queues[start : start + MOST])))
                await asyncio.sleep(PAUSE)
        finally:
            self.telling = None

    async def send(self, queues: str) -> None:
        try:
            connection = await self.opened()
            async with self.opening:
                text, _ = SQL["notify"]
                await connection.execute(text, CHANNEL, queues, timeout=DEADLINE)
        except ERRORS:
            # The others look by themselves.
            await self.drop()

    def listen(self) -> None:
        if self.listens and self.listening is None:
            self.listening = asyncio.get_running_loop().create_task(self.keep_listening())

    async def keep_listening(self) -> None:
        while True:
            try:
                await self.listen_once()
            except ERRORS:
                await asyncio.sleep(AFTER_TROUBLE)
            finally:
                self.hears = False

    async def listen_once(self) -> None:
        """Until the connection is gone."""
        gone = asyncio.Event()
        connection = await self.opened()
        connection.add_termination_listener(lambda _: gone.set())
        async with self.opening:
            await connection.add_listener(CHANNEL, self.heard)
        self.hears = True
        # Whatever came before is looked for.
        self.wake(None)
        await gone.wait()

    def heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        words = str(payload).split(",")
        self.wake({int(word) for word in words if word.isdecimal()})

    async def opened(self) -> asyncpg.Connection:
        async with self.opening:
            if self.connection is None or self.connection.is_closed():
                self.connection = await self.connect()
            return self.connection

    async def drop(self) -> None:
        if self.connection is not None:
            self.connection.terminate()

    async def close(self) -> None:
        self.wake(None)
        if self.telling is not None:
            await asyncio.wait([self.telling], timeout=AFTER_TROUBLE)
        for task in (self.telling, self.listening):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self.connection is not None:
            self.connection.terminate()
