"""Runs `penstock serve` on uvicorn until a signal, and lets requests finish."""

import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
import uvicorn
from structlog.typing import FilteringBoundLogger

from penstock.errors import TooManyConnections
from penstock.http.asgi import AsgiApp
from penstock.http.lingering_close import LingeringClose, error_response
from penstock.http.state import ServerState, ServiceOptions, run_service
from penstock.http.uvicorn_protocol import HttpProtocol, UvicornConfig

log: FilteringBoundLogger = structlog.get_logger()


class Server(uvicorn.Server):
    """Answers waiting claims and ends event streams before it waits for requests to finish."""

    def __init__(
        self, config: UvicornConfig, service: ServerState, parent: int | None = None
    ) -> None:
        super().__init__(config)
        self.uvicorn_config = config
        self.service = service
        # One of several server processes stops when its parent process exited.
        self.parent = parent

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        max_files = raise_file_limit()
        self.acceptors = [Acceptor(each, self.protocol, max_files) for each in sockets or []]

    def protocol(self) -> HttpProtocol:
        return HttpProtocol(self.uvicorn_config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self.acceptors:
            acceptor.close()
        self.service.close()
        await super().shutdown(sockets)
        await self.service.long_poller.wait_until_drained()

    def stop(self, number: int) -> None:
        """The first signal stops gracefully, the second one at once."""
        if self.should_exit:
            os._exit(128 + number)
        log.info("server_stopping", reason=signal.Signals(number).name)
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self.parent is not None and os.getppid() != self.parent:
            log.warning("server_stopping", reason="its parent process exited")
            self.should_exit = True
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """Listens already: clients that connect before the store is open wait."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2_048)
    listener.setblocking(False)
    return listener


async def serve(
    options: ServiceOptions,
    listener: socket.socket,
    *,
    grace: float = 30.0,
    parent: int | None = None,
) -> None:
    async with run_service(options) as service:
        config = UvicornConfig(AsgiApp(service), options.limits, grace)
        server = Server(config, service, parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop, number)
        freeze_loaded_objects()
        log.info(
            "server_started",
            address=format_address(listener),
            engine=service.store.capabilities.engine,
        )
        if not service.authenticator.asks:
            log.warning("authentication_disabled", effect="every local client has full access")
        await server.serve([listener])
    log.info("server_stopped")


def freeze_loaded_objects() -> None:
    """Takes them out of garbage collection, which would pause for long to visit them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def format_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
