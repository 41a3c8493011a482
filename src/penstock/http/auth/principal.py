"""The authenticated caller, and what a route requires of it."""

from collections.abc import Container, Iterable
from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import ip_address

from msgspec import Struct

from penstock.errors import Forbidden, InvalidInput
from penstock.model.documents import AuditEntry
from penstock.model.message import NEVER, Moment
from penstock.model.queue import EVERY
from penstock.rules.access import EVERYTHING, Access, Right
from penstock.webhooks.egress import unwrap_ipv4

LOOPBACK = ("127.0.0.1", "::1", "localhost")
NAMES = frozenset({b"127.0.0.1", b"[::1]", b"localhost"})
# Sec-Fetch-Site values of requests from pages of another site or port.
OTHER_SITES = frozenset({b"cross-site", b"same-site"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
# Headers that show where a request comes from. Proxies write all but the first three.
ORIGIN_HEADERS = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"forwarded", b"via", b"x-real-ip"}
)
# Routes that belong to the verb of another name.
VERBS = {"subscriptions": "subscribe", "artifacts": "complete"}
# The tenant that owns the store. Only its callers may act across tenants.
OWNER = "default"


class RightScope(StrEnum):
    """The range that the right of a route must cover."""

    # One queue, which the route checks. Lists show what the caller may see.
    QUEUE = "queue"
    # All queues of one scope, which the route checks.
    SCOPE = "scope"
    # All queues of all scopes of the tenant.
    TENANT = "tenant"
    # Like TENANT, but only for the tenant that owns the store.
    STORE = "store"


# Enum members are slow to look up on their class, and most operations have this extent.
QUEUE = RightScope.QUEUE


class Requirement(Struct, frozen=True):
    """The right a route requires. Without one, it admits any caller."""

    right: Right | None
    extent: RightScope = RightScope.QUEUE


class Principal:
    """The caller of a request. Queues belong to its tenant, lock tokens to its holder."""

    def __init__(
        self,
        subject: str,
        tenant: str,
        access: Access,
        types: Iterable[str] = (EVERY,),
        rate: float | None = None,
        expires_at: Moment = NEVER,
        *,
        verbs: frozenset[str] | None = None,
        roles: Iterable[str] = (),
        token_until: Moment = NEVER,
    ) -> None:
        self.subject = subject
        self.tenant = tenant
        self.access = access
        self.types = frozenset(types)
        self.rate = rate
        # Set for API keys. Issuers renew tokens, so their expiry does not count.
        self.expires_at = expires_at
        # It counts for work that goes on without the caller.
        self.token_until = token_until
        # The verbs of the right to consume that its token allows, or None for all.
        self.verbs = verbs
        # Human steps may be assigned to them.
        self.roles = frozenset(roles)

    @cached_property
    def holder(self) -> str:
        """Unique among all callers: tenant names have no slash, and subjects start with their
        kind."""
        return f"{self.tenant}/{self.subject}"

    def check_requirement(self, required: Requirement) -> None:
        if required.right is None:
            return
        self.access.check_some(required.right)
        if required.extent is QUEUE:
            return
        if required.extent is RightScope.STORE and self.tenant != OWNER:
            raise Forbidden(f"only callers of tenant {OWNER!r} may do this")
        if required.extent in (RightScope.TENANT, RightScope.STORE):
            self.access.check(required.right, EVERY)

    def check_verb(self, path: str) -> None:
        """Checks a route of the right to consume against the verbs of the token."""
        verb = path.split("/", 3)[2]
        if self.verbs is not None and VERBS.get(verb, verb) not in self.verbs:
            raise Forbidden(f"the scopes of this token do not allow it to {VERBS.get(verb, verb)}")

    def may_see_entry(self, entry: AuditEntry) -> bool:
        """True for entries of scopes whose access the caller manages."""
        if self.access.allows(Right.ACCESS, EVERY):
            return True
        return bool(entry.scope) and self.access.may_grant(Right.ACCESS, entry.scope)

    def filter_types(self, types: Iterable[str]) -> tuple[str, ...]:
        """Returns the requested types, or all types the caller may claim."""
        asked = tuple(types)
        if EVERY in self.types:
            return asked
        if not self.types:
            raise Forbidden("caller may not claim any type")
        if foreign := set(asked) - self.types:
            raise Forbidden(f"caller may not claim type {', '.join(sorted(foreign))[:200]}")
        return asked or tuple(sorted(self.types))


# The only caller without --auth. It may do everything.
OPERATOR = Principal("local", OWNER, EVERYTHING)


def refuse_exposed(host: str, *, asks: bool) -> None:
    if host not in LOOPBACK and not asks:
        raise InvalidInput(
            f"--host {host} without --auth would expose the server to anyone; add --auth, or listen"
            f" on {', '.join(LOOPBACK)}"
        )


def refuse_remote(address: str) -> None:
    """Refuses remote clients of a mounted app, which cannot know where its host listens."""
    if is_remote(address):
        raise Forbidden(
            f"{address} is not this machine: a server without authentication serves local clients"
            " only"
        )


@lru_cache(64)
def is_remote(address: str) -> bool:
    """False for UNIX sockets and in-process clients, which have no address."""
    try:
        return not unwrap_ipv4(ip_address(address)).is_loopback
    except ValueError:
        return False


def local_caller(
    method: str, headers: Iterable[tuple[bytes, bytes]], origins: Container[bytes] = ()
) -> Principal:
    """Admits local requests. Refuses those of foreign web pages (CSRF) except `origins`, of host
    names that resolve here (DNS rebinding) and those forwarded by a proxy."""
    host = origin = site = None
    for name, value in headers:
        if name not in ORIGIN_HEADERS and name[:12] != b"x-forwarded-":
            continue
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site":
            site = value
        else:
            raise Forbidden(
                f"request was forwarded by a proxy ({name.decode('latin-1')}); start the server"
                " with --auth to serve other machines"
            )
    if origin in origins:
        origin = None
    elif site in OTHER_SITES and method not in SAFE_METHODS:
        raise Forbidden("cross-site requests may not write")
    refuse_foreign(host, origin)
    return OPERATOR


def refuse_foreign(host: bytes | None, origin: bytes | None) -> None:
    if host is not None and not is_local_host(host):
        raise Forbidden(f"host {host.decode('latin-1')[:100]!r} is not a loopback address")
    if origin is not None and origin != b"http://" + (host or b""):
        raise Forbidden(f"origin {origin.decode('latin-1')[:100]!r} is not allowed")


@lru_cache(64)
def is_local_host(host: bytes) -> bool:
    """Accepts a host with or without a port."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host) in NAMES
