"""Authenticates callers by API key, token or session, or as the local operator."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from hashlib import sha256
from typing import Any, NamedTuple

from penstock.broker.credentials import PREFIX, Credentials, split
from penstock.errors import InvalidInput, NotFound, RateLimited, Unauthenticated
from penstock.http.auth.identity import Identity, TrustedIssuers
from penstock.http.auth.introspection import AccountLookup, make_introspection
from penstock.http.auth.jwt import JwtVerifier
from penstock.http.auth.principal import SAFE_METHODS, Principal, local_caller, refuse_remote
from penstock.http.auth.rate_limit import RateLimiter
from penstock.http.auth.request_credential import (
    INVALID_CREDENTIAL,
    check_credential,
    check_csrf_token,
    is_session,
    make_csrf_token,
    read_credential,
)
from penstock.http.auth.tickets import PREFIX as TICKET_PREFIX
from penstock.http.auth.tickets import (
    SESSION_PREFIX,
    IdentitySigner,
    make_session_signer,
    make_ticket_signer,
)
from penstock.model.message import NEVER, Moment
from penstock.rules.access import KEY_SUBJECT, Key
from penstock.store import Store

# Seconds until a revoked key or changed role takes effect on every server.
CACHE_TTL_S = 3.0
# The same for a browser that signed in.
SESSION_CACHE_TTL_S = 1.0
MAX_CACHED_IDENTITIES = 10_000
# Browsers drop a cookie of more than 4,096 bytes with its name and attributes.
MAX_SESSION_BYTES = 3_800
# Failed attempts per address: a burst, then a rate per second.
FAILED_ATTEMPT_RATE, TRIES_A_SECOND = 30, 0.5
# Concurrent lookups of credentials from addresses over that rate.
MAX_SUSPECT_LOOKUPS = 8


class CachedIdentity(NamedTuple):
    caller: Principal
    identity: Identity
    fresh_until: float


class SessionProof(NamedTuple):
    """A session cookie's value, when it expires, and the CSRF token of its writes."""

    token: str
    expires_at: Moment
    csrf: str


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

    async def sign_in(self, token: str, scope: Mapping[str, Any]) -> None:
        """Returns no session: without credentials, every client has full access."""
        await self.admit(scope)

    async def sign_session(self, scope: Mapping[str, Any]) -> SessionProof | None:
        return None


class Authenticator:
    asks = True

    def __init__(
        self,
        store: Store,
        trusted: TrustedIssuers,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.credentials = Credentials(store)
        self._tickets: IdentitySigner | None = None
        self._sessions: IdentitySigner | None = None
        self.trusted = trusted
        self.now = now
        self.clock = clock
        self.signed = JwtVerifier(trusted, now) if trusted.jwks_url else None
        self.asked = make_introspection(trusted, now) if trusted.introspect_url else None
        self.known: OrderedDict[bytes, CachedIdentity] = OrderedDict()
        self.tenants: set[str] = set()
        self.tries = RateLimiter(clock)
        self.suspects = asyncio.Semaphore(MAX_SUSPECT_LOOKUPS)
        self.rate_limiter = RateLimiter(clock)

    async def admit(self, scope: Mapping[str, Any]) -> Principal:
        token = read_credential(scope)
        if token.startswith(TICKET_PREFIX):
            # A stream that has begun may outlive its ticket: only `admit` looks at the time.
            (await self.tickets()).check_fresh(token.decode(), await self.store.now())
        elif token.startswith(SESSION_PREFIX) and scope["method"] not in SAFE_METHODS:
            check_csrf_token(make_csrf_token(await self.sessions(), token), scope)
        caller = await self.recognise(scope)
        rate = caller.rate or self.trusted.rate
        if rate and not self.rate_limiter.take(caller.holder, rate, max(1.0, 2 * rate)):
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

    async def tickets(self) -> IdentitySigner:
        if self._tickets is None:
            self._tickets = make_ticket_signer(await self.store.secret())
        return self._tickets

    async def sessions(self) -> IdentitySigner:
        if self._sessions is None:
            self._sessions = make_session_signer(await self.store.secret())
        return self._sessions

    async def sign_in(self, token: str, scope: Mapping[str, Any]) -> SessionProof:
        """Returns a session of the caller with this API key or token."""
        given = token.encode()
        check_credential(given)
        if given.startswith((TICKET_PREFIX, SESSION_PREFIX)):
            raise Unauthenticated(INVALID_CREDENTIAL)
        digest = sha256(given).digest()
        found = await self.authenticate_new(token, digest, None, get_peer_address(scope))
        identity, sessions = found.identity, await self.sessions()
        if identity.subject.startswith(KEY_SUBJECT):
            # The rest is read from the key each time.
            identity = Identity(subject=identity.subject, tenant=identity.tenant)
        session, expires_at = sessions.issue(identity, await self.store.now())
        if len(session) > MAX_SESSION_BYTES:
            raise InvalidInput(
                f"the groups and grants of this token need a cookie of {len(session):,} bytes, and"
                f" browsers keep {MAX_SESSION_BYTES:,}; sign in with an API key, or with a token"
                " that has fewer of them"
            )
        return SessionProof(session, expires_at, make_csrf_token(sessions, session.encode()))

    async def sign_session(self, scope: Mapping[str, Any]) -> SessionProof | None:
        """Returns the session of this request, if a cookie signed it in."""
        token = read_credential(scope)
        if not token.startswith(SESSION_PREFIX):
            return None
        sessions = await self.sessions()
        expires_at = sessions.verify(token.decode()).expires_at
        return SessionProof(token.decode(), expires_at, make_csrf_token(sessions, token))

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
        caller = Principal(
            identity.subject,
            identity.tenant,
            access,
            *limits,
            verbs=identity.verbs,
            roles=(*identity.roles, *identity.groups),
            token_until=identity.token_until,
        )
        lifetime = SESSION_CACHE_TTL_S if is_session(token) else CACHE_TTL_S
        found = self.known[digest] = CachedIdentity(caller, identity, self.clock() + lifetime)
        if len(self.known) > MAX_CACHED_IDENTITIES:
            self.known.popitem(last=False)
        return found

    async def identify(self, token: str, known: CachedIdentity | None) -> Identity:
        if token.startswith(PREFIX):
            return await self.by_key(token)
        if token.startswith(TICKET_PREFIX.decode()):
            return await self.renew((await self.tickets()).read(token))
        if is_session(token):
            sessions = await self.sessions()
            sessions.check_fresh(token, await self.store.now())
            return await self.renew(sessions.read(token))
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

    async def renew(self, identity: Identity) -> Identity:
        """Returns who got a ticket or a session, if that credential is still valid."""
        if identity.subject.startswith(KEY_SUBJECT):
            key = await self.find_key(identity.subject.removeprefix(KEY_SUBJECT))
            if key.state(await self.store.now()) != "active":
                raise Unauthenticated(INVALID_CREDENTIAL)
            return make_key_identity(key)
        if self.now() >= identity.until:
            raise Unauthenticated("the token that it was created with has expired")
        return identity

    async def find_key(self, id: str) -> Key:
        try:
            return await self.credentials.get_key(id)
        except NotFound:
            raise Unauthenticated(INVALID_CREDENTIAL) from None


def make_key_identity(key: Key) -> Identity:
    return Identity(
        subject=KEY_SUBJECT + key.id,
        tenant=key.tenant,
        roles=key.roles,
        grants=key.grants,
        scopes=key.scopes,
        types=key.types,
        rate=key.rate,
        expires_at=key.expires_at,
    )


def get_peer_address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return client[0] if client else ""
