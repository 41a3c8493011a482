"""Accepts connections, and responds with 503 when file descriptors run out."""

import asyncio
import errno
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from structlog.typing import FilteringBoundLogger

from penstock.errors import TooManyConnections
from penstock.http.lingering_close import LingeringClose, error_response

log: FilteringBoundLogger = structlog.get_logger()
# Reserved for the store, artifacts, callbacks and connections being refused.
RESERVED_FILES = 256
# macOS accepts no higher limit.
MAX_FILES_FALLBACK = 10_240
ACCEPTS_PER_ROUND = 64
RETRY_S = 1.0
LOG_INTERVAL_S = 10.0
OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_file_limit() -> int:
    """Raises the limit of open files as far as the system allows, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, MAX_FILES_FALLBACK):
        if wanted == soft:
            break
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Acceptor:
    """Hands connections over to the protocol.

    The kernel assigns the lowest free file descriptor, so a new connection's descriptor shows how
    many files are open, including files opened elsewhere.
    """

    def __init__(
        self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], max_files: int
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.listener = listener
        self.protocol = protocol
        self.max_files = max_files
        self.reserved = min(RESERVED_FILES, max_files // 4)
        self.tasks: set[asyncio.Task[object]] = set()
        self.retry: asyncio.TimerHandle | None = None
        self.refused = 0
        self.logged_at = -LOG_INTERVAL_S
        self.listen()

    def listen(self) -> None:
        self.loop.add_reader(self.listener, self.accept)

    def close(self) -> None:
        self.loop.remove_reader(self.listener)
        if self.retry is not None:
            self.retry.cancel()

    def accept(self) -> None:
        """Accepts a bounded number, so that open connections are not starved."""
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self.pause(error)
                return
            connection.setblocking(False)
            self.take(connection)

    def take(self, connection: socket.socket) -> None:
        spare = self.max_files - connection.fileno()
        if spare > self.reserved:
            self.connect(connection, self.protocol)
        else:
            self.refuse(connection, spare)

    def connect(
        self, connection: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        task = self.loop.create_task(self.loop.connect_accepted_socket(protocol, connection))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def refuse(self, connection: socket.socket, spare: int) -> None:
        """Responds with 503. Lingers until the client has read it while descriptors allow."""
        answer = error_response(TooManyConnections("server has run out of file descriptors"), [])
        self.refused += 1
        self.report("connections_refused", refused=self.refused, max_files=self.max_files)
        if spare > self.reserved // 2:
            self.connect(connection, lambda: LingeringClose(self.loop, answer))
            return
        with connection, suppress(OSError):
            connection.send(answer)

    def pause(self, error: OSError) -> None:
        """Leaves clients in the backlog for RETRY_S."""
        self.report("accept_failed", error=error.strerror)
        self.loop.remove_reader(self.listener)
        self.retry = self.loop.call_later(RETRY_S, self.listen)

    def report(self, event: str, **details: object) -> None:
        if (now := time.monotonic()) - self.logged_at >= LOG_INTERVAL_S:
            self.logged_at = now
            log.warning(event, **details)
