"""Opens and caches one broker per event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from penstock import stores
from penstock.errors import InvalidState
from penstock.extras import require_extra
from penstock.outage import Outages
from penstock.stores.urls import get_file_path

if TYPE_CHECKING:
    import asyncio

    from penstock.artifacts.service import ArtifactService
    from penstock.broker.interfaces.broker import BrokerInterface
    from penstock.client.mapping import FenceLedger

# A process id and an event loop.
Where: TypeAlias = "tuple[int, asyncio.AbstractEventLoop]"


class StoreAddress(Struct, frozen=True):
    """The address by which another process opens the store. `tokens` are the lock tokens of
    messages claimed over HTTP, by id and fence."""

    url: str
    key: str | None
    tokens: Mapping[tuple[int, int], str] | None


class BrokerPool:
    def __init__(
        self, url: str, tenant: str, artifacts: str | None = None, key: str | None = None
    ) -> None:
        self.url = url
        self.key = key
        self.artifacts = artifacts
        # The server also runs the agents.
        self.remote = url.startswith(("http://", "https://"))
        # Shared by loops: messages claimed over HTTP may be settled and renewed on others.
        self.ledger: FenceLedger | None = None
        self.tenant = tenant
        # Shared by all brokers, so that one outage is logged once.
        self.outages = Outages()
        self.in_memory = url.partition("?")[0] in ("sqlite://", "sqlite:///:memory:")
        self.opening: dict[Where, asyncio.Task[BrokerInterface]] = {}
        self.held: dict[Where, AsyncGenerator[BrokerInterface, None]] = {}
        # In tests, finds the broker of a simulation, for any loop.
        self.simulated: Callable[[], BrokerInterface] | None = None

    async def get_broker(self) -> BrokerInterface:
        """Returns the broker of the running loop. A forked child opens its own."""
        if self.simulated is not None:
            return self.simulated()
        import asyncio

        here = (os.getpid(), asyncio.get_running_loop())
        opening = self.opening.get(here)
        if opening is None or (opening.done() and opening.exception() is not None):
            self.refuse_second(here)
            opening = self.opening[here] = asyncio.ensure_future(self.hold(here))
            await self.close_ended()
        return await asyncio.shield(opening)

    def adopt(self, find: Callable[[], BrokerInterface]) -> None:
        """Uses the broker that `find` returns, which the caller closes."""
        self.simulated = find

    def release(self) -> None:
        self.simulated = None

    def refuse_second(self, here: Where) -> None:
        if self.in_memory and self.opening.keys() - {here}:
            raise InvalidState(
                "an in-memory store works in one event loop only, and another loop uses it:"
                " close the app there, or use a file such as sqlite:///penstock.db"
            )

    async def hold(self, here: Where) -> BrokerInterface:
        self.held[here] = self.open_broker()
        return await anext(self.held[here])

    async def open_broker(self) -> AsyncGenerator[BrokerInterface, None]:
        """A generator, so that a loop that shuts down closes its broker."""
        broker = await self.open()
        try:
            yield broker
        finally:
            await broker.close()

    async def open(self) -> BrokerInterface:
        if self.remote:
            return self.open_remote()
        from penstock.broker.local import Broker

        store = await stores.open(self.url)
        artifact_service = self.open_artifact_service(await store.secret())
        return Broker(
            store, tenant=self.tenant, artifact_service=artifact_service, outages=self.outages
        )

    def open_artifact_service(self, secret: bytes) -> ArtifactService | None:
        """Opens the artifacts, by default in a directory beside a SQLite file."""
        if self.artifacts is None and get_file_path(self.url) is None:
            return None
        from penstock.artifacts.rules import make_limits
        from penstock.artifacts.service import ArtifactService
        from penstock.artifacts.storage import default_location, open_storage

        location = self.artifacts or default_location(self.url)
        return ArtifactService(open_storage(location, secret), make_limits())

    def open_remote(self) -> BrokerInterface:
        with require_extra("client"):
            from penstock.client.broker import RemoteBroker
            from penstock.client.mapping import FenceLedger

        self.ledger = self.ledger or FenceLedger()
        return RemoteBroker(self.url, self.ledger, self.key, self.outages)

    def address(self) -> StoreAddress | None:
        """None for a store in memory, which no other process sees."""
        if self.in_memory:
            return None
        return StoreAddress(self.url, self.key, None if self.ledger is None else self.ledger.tokens)

    async def close_ended(self) -> None:
        """Closes brokers whose loops are closed."""
        for where in list(self.opening):
            process, loop = where
            if process == os.getpid() and loop.is_closed():
                self.held.pop(where, None)
                opening = self.opening.pop(where, None)
                if opening is not None and opening.done() and opening.exception() is None:
                    await opening.result().close()

    async def close(self) -> None:
        """Closes the broker of the running loop."""
        import asyncio

        here = (os.getpid(), asyncio.get_running_loop())
        opening = self.opening.pop(here, None)
        if opening is None:
            return
        # A failed open was already reported by get_broker.
        await asyncio.wait([opening])
        if (held := self.held.pop(here, None)) is not None:
            await held.aclose()
