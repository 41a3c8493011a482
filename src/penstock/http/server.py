"""Runs `penstock serve` on uvicorn until a signal, and lets requests finish."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from structlog.typing import FilteringBoundLogger

from penstock.http.accept import Acceptor, raise_file_limit
from penstock.http.asgi import AsgiApp
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
        await self.service.parking.wait_until_drained()

    def stop(self, number: int) -> None:
        """The first signal stops gracefully, the second one at once."""
        if self.should_exit:
            os._exit(128 + number)
        log.info("server_stopping", why=signal.Signals(number).name)
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self.parent is not None and os.getppid() != self.parent:
            log.warning("server_stopping", why="its parent process exited")
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
        if not service.gate.asks:
            log.warning("no_credentials_asked", so="every client on this machine has full access")
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
