"""A bounded connection pool that reuses the most recently used connection first."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from penstock.errors import StoreBusy, StoreClosed


class Connection(Protocol):
    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


C = TypeVar("C", bound=Connection)


class ConnectionPool(ABC, Generic[C]):
    def __init__(
        self, connect: Callable[[], Awaitable[C]], size: int, acquire_timeout_s: float
    ) -> None:
        self.connect = connect
        self.size = size
        self.acquire_timeout_s = acquire_timeout_s
        self.idle: list[C] = []
        self.used: set[C | object] = set()
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.closed = False

    @abstractmethod
    def is_harmless(self, error: BaseException) -> bool:
        """True if the connection can be reused after this error."""

    @abstractmethod
    async def leave(self, connection: C) -> None:
        """Closes the connection gracefully, within a short time limit."""

    @asynccontextmanager
    async def use(self) -> AsyncIterator[C]:
        """Lends a connection. One left in an unknown state is dropped."""
        connection = self.take_idle() or await self.take()
        try:
            yield connection
        except BaseException as error:
            self.drop_after(error, connection)
            raise
        finally:
            self.give_back(connection)

    async def take(self) -> C:
        if self.closed:
            raise StoreClosed("the store is closed")
        while not self.idle and len(self.used) >= self.size:
            await self.turn()
        return self.take_idle() or await self.grow()

    def take_idle(self) -> C | None:
        """Takes an idle connection, without waiting. Hot calls use it instead of `use`."""
        while self.idle and not self.closed:
            connection = self.idle.pop()
            if not connection.is_closed():
                self.used.add(connection)
                return connection
        return None

    def drop_after(self, error: BaseException, connection: C) -> None:
        """Drops the connection if the error left it in an unknown state."""
        if not self.is_harmless(error):
            connection.terminate()
            if not isinstance(error, asyncio.CancelledError):
                self.drop_idle()

    async def turn(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            async with asyncio.timeout(self.acquire_timeout_s):
                await future
        except TimeoutError:
            raise StoreBusy(
                f"all {self.size} connections were in use for {self.acquire_timeout_s:g} s;"
                " raise pool_size in the store's url"
            ) from None
        except asyncio.CancelledError:
            if not future.cancelled():
                # It was cancelled after it got its turn: pass the turn on.
                self.serve_waiting()
            raise

    async def grow(self) -> C:
        place = object()
        self.used.add(place)
        try:
            connection = await self.connect()
            self.used.add(connection)
            return connection
        finally:
            self.used.discard(place)
            self.serve_waiting()

    def drop_idle(self) -> None:
        """Drops idle connections after one broke: the others are probably broken too."""
        while self.idle:
            self.idle.pop().terminate()

    def give_back(self, connection: C) -> None:
        self.used.discard(connection)
        if self.closed:
            connection.terminate()
        elif not connection.is_closed():
            self.idle.append(connection)
        self.serve_waiting()

    def serve_waiting(self) -> None:
        while self.waiting and (self.idle or len(self.used) < self.size):
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    async def close(self) -> None:
        self.closed = True
        while self.idle:
            await self.leave(self.idle.pop())
