"""Timeouts of one connection: the head of a request, an idle connection, an unread answer."""

import asyncio
from collections.abc import Callable


class ReadTimer:
    """Calls `expire` when a head takes too long, or when a connection is idle for too long.

    One timer serves many requests: to set and cancel one for each is a twentieth of its work. When
    it fires it finds out whether anything is due.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        head_timeout: float,
        keep_alive: float,
        expire: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.head_timeout = head_timeout
        self.keep_alive = keep_alive
        self.expire = expire
        # When the head that is awaited or being read began.
        self.head_since: float | None = None
        # When the last answer was given, while no request has begun since.
        self.idle_since: float | None = None
        self.handle: asyncio.TimerHandle | None = None

    def await_head(self) -> None:
        self.head_since = self.loop.time()
        self.cancel()
        self.check_after(self.head_timeout)

    def await_request(self) -> None:
        """The client may take as long as a connection may be idle."""
        self.idle_since = self.loop.time()
        if self.handle is None:
            self.check_after(self.keep_alive)

    def check_after(self, seconds: float) -> None:
        self.handle = self.loop.call_later(seconds, self.check)

    def check(self) -> None:
        self.handle = None
        deadline = self.deadline()
        if deadline is None:
            return
        left = deadline - self.loop.time()
        if left > 0:
            self.check_after(left)
        else:
            self.expire()

    def deadline(self) -> float | None:
        if self.head_since is not None:
            return self.head_since + self.head_timeout
        return None if self.idle_since is None else self.idle_since + self.keep_alive

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class WriteTimer:
    """Cuts off a client that reads nothing of its answer for `timeout` seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, timeout: float
    ) -> None:
        self.loop = loop
        self.transport = transport
        self.timeout = timeout
        self.handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.cancel()
        unsent = self.transport.get_write_buffer_size()
        self.handle = self.loop.call_later(self.timeout, self.check, unsent)

    def check(self, unsent: int) -> None:
        if self.transport.get_write_buffer_size() < unsent:
            self.start()
        else:
            self.transport.abort()

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
