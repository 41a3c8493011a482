"""Runs the service until a signal: who waits is answered, who works may finish."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock import stores
from penstock.artifacts.rules import MAX_FILE_BYTES, make_limits
from penstock.artifacts.storage import default_location, open_storage
from penstock.broker.artifacts import ArtifactRoom
from penstock.http.accept import Acceptor, raise_file_limit
from penstock.http.application import make_app
from penstock.http.auth.authenticate import Authenticator, OpenAuthenticator
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.auth.trusted_proxies import TrustedProxies
from penstock.http.state import ServerLimits, ServerState
from penstock.http.uvicorn_config import UvicornConfig
from penstock.http.uvicorn_protocol import HttpProtocol

log: FilteringBoundLogger = structlog.get_logger()


class Serving(Struct, frozen=True):
    """What one server process is to do."""

    url: str
    grace: float = 30.0
    limits: ServerLimits = ServerLimits()
    parent: int | None = None
    # A directory or a bucket; unsaid, beside the store.
    artifacts: str | None = None
    max_artifact: int = MAX_FILE_BYTES
    # Whom to believe; None asks for nothing.
    believed: TrustedIssuers | None = None
    # Addresses and networks of reverse proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[str, ...] = ()


class Server(uvicorn.Server):
    """Signals are the service's own; whoever waits is answered before anybody is waited for."""

    def __init__(
        self, config: UvicornConfig, service: ServerState, parent: int | None = None
    ) -> None:
        super().__init__(config)
        self.uvicorn_config = config
        self.service = service
        # One of several processes ends when nobody is there who would stop it.
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
        """The first signal asks; the second is a crash, and the leases will tell."""
        if self.should_exit:
            os._exit(128 + number)
        log.info("server_stopping", why=signal.Signals(number).name)
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self.parent is not None and os.getppid() != self.parent:
            log.warning("server_stopping", why="its parent is gone")
            self.should_exit = True
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """Listening: whoever connects before the store is open waits, and is not refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2_048)
    listener.setblocking(False)
    return listener


async def serve(plan: Serving, listener: socket.socket) -> None:
    async with await stores.open(plan.url) as store:
        secret = await store.secret()
        place = open_storage(plan.artifacts or default_location(plan.url), secret)
        room = ArtifactRoom(place, make_limits(plan.max_artifact))
        gate = OpenAuthenticator() if plan.believed is None else Authenticator(store, plan.believed)
        proxies = TrustedProxies(plan.trusted_proxies) if plan.trusted_proxies else None
        service = ServerState(store, secret, plan.limits, room=room, gate=gate, proxies=proxies)
        config = UvicornConfig(make_app(service), plan.limits, plan.grace)
        server = Server(config, service, plan.parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop, number)
        settle_down()
        async with service.sender, service.callbacks, service.notices, service.runner:
            log.info(
                "server_started", address=format_address(listener), engine=store.capabilities.engine
            )
            if not gate.asks:
                log.warning(
                    "no_credentials_asked", so="whoever reaches this address may do everything"
                )
            await server.serve([listener])
    log.info("server_stopped")


def settle_down() -> None:
    """What is loaded stays: collecting it again and again costs long pauses."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def format_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
