"""Authenticates callers by API key, JWT or opaque token, or as the local operator."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from hashlib import sha256
from typing import Any, NamedTuple

from penstock.broker.credentials import PREFIX, Credentials, split
from penstock.errors import NotFound, RateLimited, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers
from penstock.http.auth.introspection import Introspection
from penstock.http.auth.jwt import JwtVerifier
from penstock.http.auth.principal import Principal, local_caller, refuse_remote
from penstock.http.auth.rate_limit import RateLimiter
from penstock.store import Store

# Seconds until a revoked key or changed role takes effect on every server.
CACHE_TTL_S = 3.0
MAX_CACHED_IDENTITIES = 10_000
MAX_TOKEN_LENGTH = 8_192
# Failed attempts per address: a burst, then a rate per second.
FAILED_ATTEMPT_RATE, TRIES_A_SECOND = 30, 0.5
# Concurrent lookups of credentials from addresses over that rate.
MAX_SUSPECT_LOOKUPS = 8
NOT_SHOWN = "missing credentials; send Authorization: Bearer KEY"
INVALID_CREDENTIAL = "invalid API key or token"


class CachedIdentity(NamedTuple):
    caller: Principal
    identity: Identity
    fresh_until: float


class OpenAuthenticator:
    """Treats every client on this machine as its operator, and refuses all others."""

    asks = False

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        refuse_remote(get_peer_address(scope))
        return local_caller(scope["method"], scope["headers"])

    async def recognise(self, scope: Mapping[str, Any]) -> Principal:
        return await self.admit(scope)


class Authenticator:
    asks = True

    def __init__(
        self,
        store: Store,
        believed: TrustedIssuers,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.credentials = Credentials(store)
        self.believed = believed
        self.now = now
        self.clock = clock
        self.signed = JwtVerifier(believed, now) if believed.jwks_url else None
        self.asked = Introspection(believed, now) if believed.introspect_url else None
        self.known: OrderedDict[bytes, CachedIdentity] = OrderedDict()
        self.tenants: set[str] = set()
        self.tries = RateLimiter(clock)
        self.suspects = asyncio.Semaphore(MAX_SUSPECT_LOOKUPS)
        self.paces = RateLimiter(clock)

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        caller = await self.recognise(scope)
        rate = caller.rate or self.believed.rate
        if rate and not self.paces.take(caller.holder, rate, max(1.0, 2 * rate)):
            raise RateLimited(f"rate limit of {rate:g} requests per second exceeded")
        return caller

    async def recognise(self, scope: Mapping[str, Any]) -> Principal:
        """Returns the caller with rights at most CACHE_TTL_S seconds old."""
        token = read_credential(scope)
        digest = sha256(token).digest()
        known = self.known.get(digest)
        if known is None or self.clock() >= known.fresh_until:
            known = await self.authenticate_new(
                token.decode(), digest, known, get_peer_address(scope)
            )
        return known.caller

    async def authenticate_new(
        self, token: str, digest: bytes, known: CachedIdentity | None, address: str
    ) -> CachedIdentity:
        """Authenticates a caller that is not cached or whose rights may have changed."""
        # Failed attempts of others only delay a valid credential; they never refuse it.
        suspect = known is None and self.tries.is_spent(address)
        try:
            async with self.suspects if suspect else nullcontext():
                identity = await self.identify(token, known)
        except Unauthenticated:
            self.known.pop(digest, None)
            if not self.tries.take(address, TRIES_A_SECOND, FAILED_ATTEMPT_RATE):
                raise RateLimited(
                    "too many failed authentication attempts from this address"
                ) from None
            raise
        if identity.tenant not in self.tenants:
            await self.credentials.create_tenant(identity.tenant)
            self.tenants.add(identity.tenant)
        access = await self.credentials.make_access(
            identity.tenant, identity.roles, identity.grants, identity.scopes
        )
        limits = (identity.types, identity.rate, identity.expires_at)
        caller = Principal(identity.subject, identity.tenant, access, *limits)
        found = self.known[digest] = CachedIdentity(caller, identity, self.clock() + CACHE_TTL_S)
        if len(self.known) > MAX_CACHED_IDENTITIES:
            self.known.popitem(last=False)
        return found

    async def identify(self, token: str, known: CachedIdentity | None) -> Identity:
        if token.startswith(PREFIX):
            return await self.by_key(token)
        if known is not None and self.now() < known.identity.until:
            return known.identity
        if self.signed is not None and token.count(".") == 2:
            return await self.signed.identify(token)
        if self.asked is not None:
            return await self.asked.identify(token)
        raise Unauthenticated(INVALID_CREDENTIAL)

    async def by_key(self, token: str) -> Identity:
        parts = split(token)
        if parts is None:
            raise Unauthenticated(INVALID_CREDENTIAL)
        id, digest = parts
        try:
            key = await self.credentials.get_key(id)
        except NotFound:
            raise Unauthenticated(INVALID_CREDENTIAL) from None
        if not key.accepts_digest(digest, await self.store.now()):
            raise Unauthenticated(INVALID_CREDENTIAL)
        return Identity(
            subject=f"key:{key.id}",
            tenant=key.tenant,
            roles=key.roles,
            grants=key.grants,
            scopes=key.scopes,
            types=key.types,
            rate=key.rate,
            expires_at=key.expires_at,
        )


def read_credential(scope: Mapping[str, Any]) -> bytes:
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        raise Unauthenticated(NOT_SHOWN)
    scheme, _, token = given[0].partition(b" ")
    if scheme.lower() != b"bearer" or not token or len(token) > MAX_TOKEN_LENGTH:
        raise Unauthenticated(NOT_SHOWN)
    if not token.isascii() or not token.decode().isprintable() or b" " in token:
        raise Unauthenticated(INVALID_CREDENTIAL)
    return token


def get_peer_address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return client[0] if client else ""
