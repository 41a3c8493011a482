"""Hears of work that other processes published. Only ever a hint: polling is the truth."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.errors import StoreError
from penstock.stores.redis.session import Session
from penstock.stores.redis.trouble import ERRORS
from penstock.stores.waiters import Waiters

AFTER_TROUBLE = 1.0
# How long a waiter may trust that it would hear.
HEARING, DEAF = 1.0, 0.05


class Wake(Waiters):
    """One connection of its own, opened when there is somebody to wake."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], channel: bytes) -> None:
        super().__init__()
        self.connect = connect
        self.channel = channel
        self.session: Session | None = None
        self.listening: asyncio.Task[None] | None = None
        self.hears = False

    @property
    def longest_wait(self) -> float:
        return HEARING if self.hears else DEAF

    def listen(self) -> None:
        if self.listening is None:
            self.listening = asyncio.get_running_loop().create_task(self.keep_listening())

    async def keep_listening(self) -> None:
        while True:
            try:
                await self.listen_once()
            except (*ERRORS, StoreError):
                await asyncio.sleep(AFTER_TROUBLE)
            finally:
                self.hears = False
                self.leave()

    async def listen_once(self) -> None:
        """Until the connection is gone."""
        self.session = await self.connect()
        await self.session.ask("SUBSCRIBE", self.channel)
        self.hears = True
        # Whatever came before is looked for.
        self.wake(None)
        while True:
            kind, _, queues = await self.session.connection.read_response()
            if kind == b"message":
                self.wake(map(int, queues.split(b",")))

    def leave(self) -> None:
        if self.session is not None:
            self.session.terminate()
            self.session = None

    async def close(self) -> None:
        self.wake(None)
        if self.listening is not None:
            self.listening.cancel()
            await asyncio.wait([self.listening])
