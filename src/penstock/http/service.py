"""Opens the store and runs the agents, for `penstock serve` and for a mounted app alike."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from penstock import stores
from penstock.artifacts.room import ArtifactRoom
from penstock.artifacts.rules import MAX_FILE_BYTES, make_limits
from penstock.artifacts.storage import default_location, open_storage
from penstock.http.auth.authenticate import Authenticator, OpenAuthenticator
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.auth.trusted_proxies import TrustedProxies
from penstock.http.state import ServerLimits, ServerState


class ServiceOptions(Struct, frozen=True, kw_only=True):
    url: str
    limits: ServerLimits = ServerLimits()
    # A directory or a bucket; None is beside the store.
    artifacts: str | None = None
    max_artifact: int = MAX_FILE_BYTES
    # None asks for no credentials, and serves this machine only.
    trusted_issuers: TrustedIssuers | None = None
    # Addresses and networks of reverse proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[str, ...] = ()


@asynccontextmanager
async def run_service(options: ServiceOptions) -> AsyncIterator[ServerState]:
    trusted = options.trusted_issuers
    async with await stores.open(options.url) as store:
        secret = await store.secret()
        place = open_storage(options.artifacts or default_location(options.url), secret)
        service = ServerState(
            store,
            secret,
            options.limits,
            room=ArtifactRoom(place, make_limits(options.max_artifact)),
            gate=OpenAuthenticator() if trusted is None else Authenticator(store, trusted),
            proxies=TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None,
        )
        async with service.sender, service.callbacks, service.notices, service.runner:
            yield service
