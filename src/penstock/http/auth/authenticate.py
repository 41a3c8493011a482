"""Authenticates callers by API key, JWT or opaque token, or as the local operator."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from penstock.broker.credentials import PREFIX, Credentials, split
from penstock.errors import NotFound, RateLimited, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers
from penstock.http.auth.introspection import AccountLookup, make_introspection
from penstock.http.auth.jwt import JwtVerifier
from penstock.http.auth.principal import Principal, local_caller, refuse_remote
from penstock.http.auth.rate_limit import RateLimiter
from penstock.http.auth.tickets import PREFIX as TICKET_PREFIX
from penstock.http.auth.tickets import StreamTickets
from penstock.model.message import NEVER, Moment
from penstock.rules.access import Key
from penstock.store import Store

# Seconds until a revoked key or changed role takes effect on every server.
CACHE_TTL_S = 3.0
MAX_CACHED_IDENTITIES = 10_000
MAX_TOKEN_LENGTH = 8_192
# Failed attempts per address: a burst, then a rate per second.
FAILED_ATTEMPT_RATE, TRIES_A_SECOND = 30, 0.5
# Concurrent lookups of credentials from addresses over that rate.
MAX_SUSPECT_LOOKUPS = 8
NOT_SHOWN = "missing credentials; send Authorization: Bearer KEY, or X-API-Key: KEY"
KEY_KIND = "key:"
STREAM_PATH = "/v1/events"
INVALID_CREDENTIAL = "invalid API key or token"


class CachedIdentity(NamedTuple):
    caller: Principal
    identity: Identity
    fresh_until: float


class OpenAuthenticator:
    """Treats every client on this machine as its operator, and refuses all others."""

    asks = False

    def __init__(self, origins: Iterable[str] = ()) -> None:
        """Pages of these origins are trusted like the operator's own programs."""
        self.origins = frozenset(origin.encode() for origin in origins)

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        refuse_remote(get_peer_address(scope))
        return local_caller(scope["method"], scope["headers"], self.origins)

    async def recognise(self, scope: Mapping[str, Any]) -> Principal:
        return await self.admit(scope)

    async def issue_ticket(self, scope: Mapping[str, Any]) -> tuple[str, Moment]:
        """Event streams need none here; pages that ask for one work all the same."""
        return "open", NEVER


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
        self._tickets: StreamTickets | None = None
        self.believed = believed
        self.now = now
        self.clock = clock
        self.signed = JwtVerifier(believed, now) if believed.jwks_url else None
        self.asked = make_introspection(believed, now) if believed.introspect_url else None
        self.known: OrderedDict[bytes, CachedIdentity] = OrderedDict()
        self.tenants: set[str] = set()
        self.tries = RateLimiter(clock)
        self.suspects = asyncio.Semaphore(MAX_SUSPECT_LOOKUPS)
        self.paces = RateLimiter(clock)

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        token = read_credential(scope)
        if token.startswith(TICKET_PREFIX):
            # A stream that has begun may outlive its ticket: only `admit` looks at the time.
            (await self.tickets()).check_fresh(token.decode(), await self.store.now())
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

    async def tickets(self) -> StreamTickets:
        if self._tickets is None:
            self._tickets = StreamTickets(await self.store.secret())
        return self._tickets

    async def issue_ticket(self, scope: Mapping[str, Any]) -> tuple[str, Moment]:
        """Returns a ticket for an event stream of this caller, and when it expires."""
        await self.recognise(scope)
        known = self.known[sha256(read_credential(scope)).digest()]
        return (await self.tickets()).issue(known.identity, await self.store.now())

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
        caller = Principal(identity.subject, identity.tenant, access, *limits, verbs=identity.verbs)
        found = self.known[digest] = CachedIdentity(caller, identity, self.clock() + CACHE_TTL_S)
        if len(self.known) > MAX_CACHED_IDENTITIES:
            self.known.popitem(last=False)
        return found

    async def identify(self, token: str, known: CachedIdentity | None) -> Identity:
        if token.startswith(PREFIX):
            return await self.by_key(token)
        if token.startswith(TICKET_PREFIX.decode()):
            return await self.by_ticket(token)
        if known is not None and self.now() < known.identity.until:
            return known.identity
        if self.signed is not None and token.count(".") == 2 and self.is_jwt(token, self.signed):
            return await self.signed.identify(token)
        if self.asked is not None:
            return await self.asked.identify(token)
        raise Unauthenticated(INVALID_CREDENTIAL)

    def is_jwt(self, token: str, signed: JwtVerifier) -> bool:
        """True unless the token is for the account lookup, whose tokens are JWTs of its own."""
        return not isinstance(self.asked, AccountLookup) or signed.is_signed_by_issuer(token)

    async def by_key(self, token: str) -> Identity:
        parts = split(token)
        if parts is None:
            raise Unauthenticated(INVALID_CREDENTIAL)
        id, digest = parts
        key = await self.find_key(id)
        if not key.accepts_digest(digest, await self.store.now()):
            raise Unauthenticated(INVALID_CREDENTIAL)
        return make_key_identity(key)

    async def by_ticket(self, token: str) -> Identity:
        """Returns who got the ticket, if that credential is still valid."""
        identity = (await self.tickets()).read(token)
        if identity.subject.startswith(KEY_KIND):
            key = await self.find_key(identity.subject.removeprefix(KEY_KIND))
            if key.state(await self.store.now()) != "active":
                raise Unauthenticated(INVALID_CREDENTIAL)
            return make_key_identity(key)
        if self.now() >= identity.until:
            raise Unauthenticated("the token that the ticket was made with has expired")
        return identity

    async def find_key(self, id: str) -> Key:
        try:
            return await self.credentials.get_key(id)
        except NotFound:
            raise Unauthenticated(INVALID_CREDENTIAL) from None


def make_key_identity(key: Key) -> Identity:
    return Identity(
        subject=KEY_KIND + key.id,
        tenant=key.tenant,
        roles=key.roles,
        grants=key.grants,
        scopes=key.scopes,
        types=key.types,
        rate=key.rate,
        expires_at=key.expires_at,
    )


def read_credential(scope: Mapping[str, Any]) -> bytes:
    """Returns the API key, token or ticket of a request. Generated clients may send the same one in
    both headers."""
    given: list[bytes] = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            given.append(token.strip(b" ") if scheme.lower() == b"bearer" else b"")
        elif name == b"x-api-key" and value not in given:
            given.append(value)
    if any(each.startswith(TICKET_PREFIX) for each in given):
        raise Unauthenticated("a ticket is for event streams only; send it as ?ticket=")
    given = given or read_ticket(scope)
    if len(given) != 1 or not given[0] or len(given[0]) > MAX_TOKEN_LENGTH:
        raise Unauthenticated(NOT_SHOWN)
    (token,) = given
    if not token.isascii() or not token.decode().isprintable() or b" " in token:
        raise Unauthenticated(INVALID_CREDENTIAL)
    return token


def read_ticket(scope: Mapping[str, Any]) -> list[bytes]:
    """Browsers' EventSource sends no headers, so event streams take a ticket in the query."""
    if scope["method"] != "GET" or not scope["path"].endswith(STREAM_PATH):
        return []
    query = parse_qs(scope["query_string"].decode("latin-1"))
    found = [each.encode() for each in query.get("ticket", [])]
    return [each for each in found if each.startswith(TICKET_PREFIX)]


def get_peer_address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return client[0] if client else ""
