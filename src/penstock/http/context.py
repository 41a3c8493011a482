"""The context of one authenticated request: caller, scope, body, disconnects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from penstock.broker.local import Broker
from penstock.broker.messages import Admin
from penstock.errors import BodyTooLarge, RateLimited, RequestTimeout
from penstock.http.auth.principal import Principal
from penstock.http.state import ServerLimits, ServerState
from penstock.model.documents import AuditEntry, acting
from penstock.model.message import Record
from penstock.rules.access import Right
from penstock.rules.backoff import compute_limits
from penstock.rules.masking import list_hidden, mask_record
from penstock.rules.validation import replace_surrogates
from penstock.wire.records import MessageView, make_message_view

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Item = TypeVar("Item")

CLOSE = (b"connection", b"close")
# The ASGI extension by which our uvicorn protocol passes its own Responder.
RESPONDER_EXTENSION = "penstock.responder"
MAX_TARGET_LENGTH = 300
# Requests to one URL with a token.
TOKEN_RATE = 5.0
TOKEN_BURST = 50.0
MIN_BYTES_PER_S = 1_000


class ClientDisconnected(Exception):
    """The client disconnected before it got a response."""


class Responder(Protocol):
    """Sends the response of one request and reports a disconnect."""

    @property
    def has_unread_body(self) -> bool:
        """True if the connection must close after the response, because input is unread."""

    def body(self) -> bytes | None:
        """Returns the body if it has been received completely."""

    def watch(self, on_disconnect: Callable[[], None]) -> None:
        """Starts watching for a disconnect. The body must have been read."""

    def stop_watching(self) -> bool:
        """True if the client has disconnected."""

    async def __call__(self, status: int, headers: Headers, body: bytes) -> None: ...


class RequestContext:
    """`scope` is the namespace of queues that the request addresses."""

    __slots__ = (
        "asgi_scope", "broker", "caller", "headers", "path", "receive", "request_id", "responder",
        "right", "scope", "service",
    )  # fmt: skip

    def __init__(
        self,
        service: ServerState,
        caller: Principal,
        request_id: str,
        asgi_scope: Scope,
        receive: Receive,
        responder: Responder,
    ) -> None:
        self.service = service
        self.caller = caller
        self.request_id = request_id
        # Holds the credential, which long requests check again.
        self.asgi_scope = asgi_scope
        self.headers: Headers = asgi_scope["headers"]
        self.receive = receive
        self.responder = responder
        self.broker: Broker = service.get_broker(caller.tenant)
        self.scope = "default"
        # The right of the operation; `admin` shows only queues that it covers.
        self.right: Right | None = None
        self.path = ""

    @property
    def admin(self) -> Admin:
        """The admin operations, limited to queues this caller may see."""
        return self.broker.limit_admin(self.allows, self.reveals)

    @property
    def publisher(self) -> str | None:
        """The subject that messages of this request remember. Without authentication, None."""
        return self.caller.subject if self.service.authenticator.asks else None

    @property
    def target(self) -> str:
        where = "" if self.scope == "default" else f"?scope={self.scope}"
        return replace_surrogates(self.path[:MAX_TARGET_LENGTH] + where)

    def allows(self, scope: str, queue: str) -> bool:
        return self.right is not None and self.caller.access.allows(self.right, scope, queue)

    def reveals(self, scope: str, queue: str) -> bool:
        """True if the caller sees the masked fields of a queue."""
        return self.caller.access.allows(Right.REVEAL, scope, queue)

    async def view(self, record: Record, *, timeline: bool = False) -> MessageView:
        """Makes the view of a message that this caller may see. All responses use it."""
        queue = await self.broker.get_queue_by_id(record.message.queue_id)
        shown = mask_record(record, list_hidden(queue, self.reveals))
        view = make_message_view(shown.record, queue.name, shown.masked, timeline=timeline)
        attempt_limit, _ = compute_limits(record.message.meta, queue.settings)
        return replace(view, attempt_limit=attempt_limit)

    def check(self, right: Right, queue: str, scope: str | None = None) -> None:
        """Raises Forbidden. The scope is that of the request, unless another one is given."""
        self.caller.access.check(right, scope or self.scope, queue)

    def limit_token(self, token: str) -> None:
        """Limits the requests to one URL with a token, which need no other credential."""
        name = sha256(token.encode("utf-8", "replace")).hexdigest()
        if not self.service.secret_urls.take(name, TOKEN_RATE, TOKEN_BURST):
            raise RateLimited(f"this URL takes at most {TOKEN_RATE:g} requests per second")

    def audit(self, verb: str, scope: str) -> None:
        """Starts the audit entry of a change. An empty scope audits under the tenant."""
        acting.set(
            AuditEntry(
                subject=self.caller.subject,
                tenant=self.caller.tenant,
                scope=scope,
                verb=verb,
                target=self.target,
                request_id=self.request_id,
            )
        )

    def act_in(self, scope: str) -> None:
        """Audits this request under that scope."""
        if (act := acting.get()) is not None:
            acting.set(replace(act, scope=scope))

    def get_header(self, name: bytes) -> str | None:
        for each, value in self.headers:
            if each == name:
                return value.decode("latin-1")
        return None

    @property
    def content_length(self) -> int | None:
        """The declared length of the body; None for a chunked one."""
        given = self.get_header(b"content-length")
        return None if given is None else int(given)

    async def body(self) -> bytes:
        limits = self.service.limits
        here = self.responder.body()
        return await read_body(self.receive, limits) if here is None else fitting(here, limits)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Streams a body of any length."""
        reader, more = BodyReader(self.receive, self.service.limits.body_timeout), True
        while more:
            piece, more = await reader.next_piece()
            yield piece

    async def lines(self) -> AsyncIterator[bytes]:
        """Streams the lines of a body of any length."""
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > self.service.limits.body:
                raise BodyTooLarge(f"a line exceeds {self.service.limits.body} bytes")
        yield rest


def cut_page(
    call: RequestContext,
    items: Iterable[Item],
    key: Callable[[Item], str],
    limit: int,
    cursor: str | None,
    *filter: object,
) -> tuple[list[Item], str | None]:
    """Returns one page of a list, sorted by `key`, and the cursor of the next page."""
    tokens, filter = call.service.tokens, (call.caller.tenant, call.scope, *filter)
    after = "" if cursor is None else tokens.unseal_name(cursor, filter)
    rest = sorted((each for each in items if key(each) > after), key=key)
    page = rest[:limit]
    return page, tokens.seal_name(key(page[-1]), filter) if len(rest) > limit else None


async def read_body(receive: Receive, limits: ServerLimits) -> bytes:
    """Reads a whole body. Refuses one that is too large or too slow."""
    reader = BodyReader(receive, limits.body_timeout)
    pieces, size, more = [], 0, True
    while more and size <= limits.body:
        piece, more = await reader.next_piece()
        pieces.append(piece)
        size += len(piece)
    return fitting(b"".join(pieces), limits)


class BodyReader:
    """Reads a body piece by piece, and refuses a client that stops sending or sends too slowly.

    The client has `timeout` seconds. Waiting for it uses them up, and every `MIN_BYTES_PER_S` bytes
    give one back. What the server does between two pieces does not count.
    """

    __slots__ = ("left", "receive", "timeout")

    def __init__(self, receive: Receive, timeout: float) -> None:
        self.receive = receive
        self.timeout = self.left = timeout

    async def next_piece(self) -> tuple[bytes, bool]:
        """Returns the next piece, and whether there are more."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self.left):
                piece, more = await next_piece(self.receive)
        except TimeoutError:
            raise RequestTimeout(
                f"request body stalled: the server allows {self.timeout:g} s"
                f" plus 1 s for every {MIN_BYTES_PER_S} bytes"
            ) from None
        earned = len(piece) / MIN_BYTES_PER_S
        self.left = min(self.timeout, self.left - (loop.time() - began) + earned)
        return piece, more


def fitting(body: bytes, limits: ServerLimits) -> bytes:
    if len(body) > limits.body:
        raise BodyTooLarge(f"request body exceeds {limits.body} bytes")
    return body


async def next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Returns the next piece, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def route_path_of(scope: Scope) -> str:
    """The path without the prefix that the app is mounted at."""
    path: str = scope["path"]
    prefix = scope.get("root_path")
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path
