"""The service as an ASGI app: for any ASGI server, or mounted in a FastAPI or Starlette app."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context

import structlog
from starlette.routing import Router
from structlog.typing import FilteringBoundLogger

from penstock.artifacts.rules import MAX_FILE_BYTES
from penstock.errors import PenstockError, StoreClosed
from penstock.http.asgi import AsgiApp, AsgiResponse
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.auth.jwt import check
from penstock.http.auth.trusted_proxies import TrustedProxies
from penstock.http.context import Receive, Scope, Send
from penstock.http.cors import CorsPolicy
from penstock.http.state import ServerLimits, ServiceOptions, run_service
from penstock.runner import make_identity

log: FilteringBoundLogger = structlog.get_logger()


def create_app(
    url: str,
    *,
    auth: bool | TrustedIssuers = False,
    trusted_proxies: Iterable[str] = (),
    cors_origins: Iterable[str] = (),
    artifacts: str | None = None,
    max_artifact: int = MAX_FILE_BYTES,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - frozen
) -> "PenstockApp":
    """Makes the HTTP service of a store. Nothing is opened yet.

    `auth=True` asks for API keys, and TrustedIssuers for tokens of an issuer as well. Without it
    only clients on this machine are served.
    """
    trusted = TrustedIssuers() if auth is True else auth or None
    if trusted is not None:
        check(trusted)
    networks = tuple(trusted_proxies)
    TrustedProxies(networks)
    origins = tuple(cors_origins)
    CorsPolicy(origins)
    return PenstockApp(
        ServiceOptions(
            url=url,
            limits=limits,
            artifacts=artifacts,
            max_artifact=max_artifact,
            trusted_issuers=trusted,
            trusted_proxies=networks,
            cors_origins=origins,
        )
    )


class PenstockApp:
    """An ASGI app that opens the store and runs the agents for as long as it runs.

    An ASGI server starts and stops it by the lifespan protocol. A host that mounts it passes
    `lifespan` on, or enters `running()` in a lifespan of its own, because Starlette does not run
    the lifespan of mounted apps. Failing both, the first request starts it.
    """

    def __init__(self, options: ServiceOptions) -> None:
        self.options = options
        self.router = Router(lifespan=self.lifespan)
        self.app: AsgiApp | None = None
        self.task: asyncio.Task[None] | None = None
        # True once a lifespan decides when the app runs; requests do not start it any more.
        self.managed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.router(scope, receive, send)
            return
        try:
            app = self.app or await self.start_lazily()
        except PenstockError as error:
            if scope["type"] != "http":
                raise
            await AsgiResponse(scope, receive, send, make_identity()).refuse(error)
            return
        await app(scope, receive, send)

    def lifespan(self, host: object) -> AbstractAsyncContextManager[None]:
        """The lifespan of a host that has no other: `FastAPI(lifespan=app.lifespan)`."""
        return self.running()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens the store and runs the agents. The end answers waiting claims and closes both."""
        self.managed = True
        try:
            await self.start()
            yield
        finally:
            await self.stop()

    async def start_lazily(self) -> AsgiApp:
        if self.managed:
            raise StoreClosed("the app is not running: its lifespan has not begun, or has ended")
        return await self.start()

    async def start(self) -> AsgiApp:
        if self.task is None or self.task.done():
            self.started: asyncio.Future[AsgiApp] = asyncio.get_running_loop().create_future()
            self.stopping = asyncio.Event()
            # The agents outlive the request that may have started them: they share no context.
            self.task = asyncio.create_task(self.run(), name="penstock", context=Context())
        return await asyncio.shield(self.started)

    async def stop(self) -> None:
        self.stopping.set()
        if self.task is not None:
            await self.task

    async def run(self) -> None:
        """A task of its own, so that the store is closed even if only the event loop ends."""
        try:
            async with run_service(self.options) as service:
                self.app = AsgiApp(service)
                self.started.set_result(self.app)
                log.info("app_started", engine=service.store.capabilities.engine)
                try:
                    await self.stopping.wait()
                finally:
                    self.app = None
                    service.close()
                    await service.long_poller.wait_until_drained()
            log.info("app_stopped")
        except Exception as error:
            # `start` raises it; later ones end this task, and `stop` raises them.
            if self.started.done():
                raise
            self.started.set_exception(error)
        finally:
            self.started.cancel()
