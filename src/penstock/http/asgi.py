"""The ASGI entry point: serves hot routes by one lookup, and all others through FastAPI.

Authentication, request ids, body limits and the shape of errors are the same for both.
"""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec
import structlog
from fastapi import FastAPI
from starlette.routing import Match, Route
from structlog.typing import FilteringBoundLogger

from penstock.errors import (
    BodyTooLarge,
    MethodNotAllowed,
    PenstockError,
    StoreError,
    Unauthenticated,
)
from penstock.http.auth.denials import COUNTED
from penstock.http.auth.principal import Principal
from penstock.http.context import (
    CLOSE,
    KEY,
    RESPONDER_EXTENSION,
    ClientDisconnected,
    Headers,
    Message,
    Receive,
    RequestContext,
    Responder,
    Scope,
    Send,
    route_path_of,
    scope_of,
    wait_for_disconnect,
)
from penstock.http.errors import RETRY_AFTER, encode_error, encode_internal_error, find_status
from penstock.http.operations import OPERATIONS
from penstock.http.state import ServerState
from penstock.model.documents import acting
from penstock.rules.access import Access
from penstock.runner import make_identity

log: FilteringBoundLogger = structlog.get_logger()
encode = msgspec.json.Encoder().encode
JSON = (b"content-type", b"application/json")
MAX_REQUEST_ID_LENGTH = 128
OTHER = "other"
# Load balancers and API explorers read these without credentials.
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
ANONYMOUS = Principal("nobody", "default", Access(()))


class AsgiApp:
    def __init__(self, service: ServerState, app: FastAPI) -> None:
        self.service = service
        self.app = app
        self.routes = {
            path: (operation.make_reader(), operation.act, operation.status, operation.right)
            for path, operation in OPERATIONS.items()
        }
        self.name = make_identity()
        self.numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        if self.service.proxies is not None:
            scope["client"] = self.service.proxies.client_of(scope)
        answer = AsgiResponse(scope, receive, send, self.request_id(scope["headers"]))
        path = route_path_of(scope)
        try:
            await self.serve(scope, path, receive, answer)
        except ClientDisconnected:
            return
        except PenstockError as error:
            if isinstance(error, StoreError):
                self.service.outages.report_failure("http", error)
            if isinstance(error, COUNTED):
                self.service.refusals.note(answer.caller, scope, self.template_of(scope), error)
            await answer.refuse(error)
        except Exception as error:
            log.error("request_failed", request=answer.request_id, path=self.template_of(scope),
                      exc_info=error)  # fmt: skip
            await answer.fail()
        template = path if path in self.routes else find_template(scope)
        self.service.metrics.observe_request(template, answer.status, time.perf_counter() - began)

    async def serve(
        self, scope: Scope, path: str, receive: Receive, answer: "AsgiResponse"
    ) -> None:
        # A connection may carry over what the request before it set.
        acting.set(None)
        answer.caller = caller = await self.admit(scope, path)
        found = self.routes.get(path)
        if found is None:
            scope[KEY] = call = RequestContext(
                self.service, caller, "default", answer.request_id, receive, answer.responder
            )
            call.asgi_scope = scope
            await self.serve_cold(scope, path, receive, answer)
            return
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{path} takes POST alone")
        read, act, status, right = found
        caller.access.check_some(right)
        namespace = scope_of(scope["query_string"])
        call = RequestContext(
            self.service, caller, namespace, answer.request_id, receive, answer.responder
        )
        call.headers = scope["headers"]
        call.asgi_scope = scope
        sent = read(await call.body())
        done = encode(await act(call, sent))
        self.service.outages.report_success("http")
        await answer.send(status, done)

    async def serve_cold(
        self, scope: Scope, path: str, receive: Receive, answer: "AsgiResponse"
    ) -> None:
        if scope["method"] != "HEAD" or path not in PUBLIC_PATHS:
            await self.app(scope, receive, answer.send_marked)
            return
        # Load balancers send HEAD. The connection leaves out the body.
        asked = {**scope, "method": "GET"}
        await self.app(asked, receive, answer.send_marked)
        scope["route"] = asked.get("route")

    async def admit(self, scope: Scope, path: str) -> Principal:
        gate = self.service.gate
        return ANONYMOUS if gate.asks and path in PUBLIC_PATHS else await gate.admit(scope)

    def template_of(self, scope: Scope) -> str:
        """The path template of the route, also for a request that was refused before routing."""
        path = route_path_of(scope)
        if path in self.routes:
            return path
        for route in self.app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return OTHER

    def request_id(self, headers: Headers) -> str:
        """The client's X-Request-ID, if it is short and printable; else a new one."""
        for name, value in headers:
            if (
                name == b"x-request-id"
                and 0 < len(value) <= MAX_REQUEST_ID_LENGTH
                and value.isascii()
            ):
                text = value.decode()
                if text.isprintable():
                    return text
        return f"{self.name}-{next(self.numbers)}"


class AsgiResponder:
    """Answers by the two messages of plain ASGI, for servers other than `penstock serve`."""

    __slots__ = ("disconnected", "receive", "to", "watcher")
    # The server drains or closes the connection itself.
    has_unread_body = False

    def __init__(self, receive: Receive, to: Send) -> None:
        self.receive = receive
        self.to = to
        self.disconnected = False
        self.watcher: asyncio.Task[None] | None = None

    def body(self) -> None:
        return None

    def watch(self, on_disconnect: Callable[[], None]) -> None:
        self.watcher = asyncio.create_task(self.report_disconnect(on_disconnect))

    async def report_disconnect(self, on_disconnect: Callable[[], None]) -> None:
        await wait_for_disconnect(self.receive)
        self.disconnected = True
        on_disconnect()

    def stop_watching(self) -> bool:
        if self.watcher is not None:
            self.watcher.cancel()
        return self.disconnected

    async def __call__(self, status: int, headers: Headers, body: bytes) -> None:
        # Sent even to a client that has left: middleware of a host may insist on a response.
        try:
            await self.to({"type": "http.response.start", "status": status, "headers": headers})
            await self.to({"type": "http.response.body", "body": body})
        except OSError:
            # ASGI servers may raise it once the client has disconnected.
            raise ClientDisconnected from None


class AsgiResponse:
    """The answer to one request, from a hot route or from FastAPI."""

    __slots__ = ("caller", "request_id", "responder", "status", "to")

    def __init__(self, scope: Scope, receive: Receive, to: Send, request_id: str) -> None:
        self.to = to
        offered = scope.get("extensions") or {}
        self.responder: Responder = (
            offered[RESPONDER_EXTENSION]["responder"]
            if RESPONDER_EXTENSION in offered
            else AsgiResponder(receive, to)
        )
        self.request_id = request_id
        self.status = 0
        self.caller: Principal | None = None

    async def send(self, status: int, body: bytes, more: Headers | None = None) -> None:
        self.status = status
        headers = [JSON, (b"content-length", b"%d" % len(body)), self.mark()]
        headers += more or []
        await self.responder(status, headers, body)

    async def send_marked(self, message: Message) -> None:
        """Passes on what FastAPI sends, with the request id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], self.mark()]
            if self.responder.has_unread_body and CLOSE not in message["headers"]:
                message["headers"].append(CLOSE)
        await self.to(message)

    def mark(self) -> tuple[bytes, bytes]:
        return b"x-request-id", self.request_id.encode()

    async def refuse(self, error: PenstockError) -> None:
        status = find_status(error)
        await self.send(
            status, encode_error(error, self.request_id), make_error_headers(error, status)
        )

    async def fail(self) -> None:
        """Answers with 500, unless an answer has begun."""
        if not self.status:
            await self.send(500, encode_internal_error(self.request_id))


def find_template(scope: Scope) -> str:
    """The path template of the route that FastAPI found. A host may have left its mount here."""
    found = scope.get("route")
    return found.path if isinstance(found, Route) else OTHER


def make_error_headers(error: PenstockError, status: int) -> Headers:
    headers: Headers = []
    if status in RETRY_AFTER:
        headers.append((b"retry-after", RETRY_AFTER[status]))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", b"POST"))
    if isinstance(error, BodyTooLarge):
        # The rest of the body is not read.
        headers.append(CLOSE)
    return headers
