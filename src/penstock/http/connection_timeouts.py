"""Timeouts of a connection: request head, idle connection, unread response."""

import asyncio
from collections.abc import Callable


class ReadTimer:
    """Calls `expire` when a request head takes too long or a connection is idle for too long.

    One timer serves many requests, because setting one per request costs 5 % of the request. When
    it fires, it checks whether a deadline has passed.
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
        # When the server began to wait for or read a request head.
        self.head_since: float | None = None
        # When the last response was sent, if no request has begun since.
        self.idle_since: float | None = None
        self.handle: asyncio.TimerHandle | None = None

    def await_head(self) -> None:
        self.head_since = self.loop.time()
        self.cancel()
        self.check_after(self.head_timeout)

    def await_request(self) -> None:
        """Starts the keep-alive timeout."""
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
    """Aborts the connection if the client reads no response bytes for `timeout` seconds."""

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
