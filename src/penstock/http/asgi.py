"""The door of the service: hot routes by one lookup, everything else by FastAPI.

Who calls, the request's id, the limit of a body and the shape of errors hold on both ways.
"""

import itertools
import time

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
    Scope,
    Send,
    scope_of,
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
# What a load balancer asks, and how to ask for the rest.
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
        answer = AsgiResponse(scope, send, self.request_id(scope["headers"]))
        route = scope["path"] if scope["path"] in self.routes else OTHER
        try:
            await self.serve(scope, receive, answer)
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
        found = scope.get("route")
        route = route if found is None else found.path
        self.service.metrics.observe_request(route, answer.status, time.perf_counter() - began)

    async def serve(self, scope: Scope, receive: Receive, answer: "AsgiResponse") -> None:
        # A connection may carry over what the request before it set.
        acting.set(None)
        answer.caller = caller = await self.admit(scope)
        found = self.routes.get(scope["path"])
        if found is None:
            scope[KEY] = call = RequestContext(
                self.service, caller, "default", answer.request_id, receive
            )
            call.asgi_scope = scope
            await self.serve_cold(scope, receive, answer)
            return
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{scope['path']} takes POST alone")
        read, act, status, right = found
        caller.access.check_some(right)
        namespace = scope_of(scope["query_string"])
        call = RequestContext(self.service, caller, namespace, answer.request_id, receive)
        call.headers = scope["headers"]
        call.asgi_scope = scope
        call.whole = answer.whole
        sent = read(await call.body())
        done = encode(await act(call, sent))
        self.service.outages.report_success("http")
        await answer.send(status, done)

    async def serve_cold(self, scope: Scope, receive: Receive, answer: "AsgiResponse") -> None:
        if scope["method"] != "HEAD" or scope["path"] not in PUBLIC_PATHS:
            await self.app(scope, receive, answer.send_marked)
            return
        # Load balancers ask so. The connection leaves out the body.
        asked = {**scope, "method": "GET"}
        await self.app(asked, receive, answer.send_marked)
        scope["route"] = asked.get("route")

    async def admit(self, scope: Scope) -> Principal:
        gate = self.service.gate
        return ANONYMOUS if gate.asks and scope["path"] in PUBLIC_PATHS else await gate.admit(scope)

    def template_of(self, scope: Scope) -> str:
        """The path of the request's route, also of a request that was refused before routing."""
        if scope["path"] in self.routes:
            return str(scope["path"])
        for route in self.app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return OTHER

    def request_id(self, headers: Headers) -> str:
        """The caller's own, if it is fit to be printed; else a new one."""
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


class AsgiResponse:
    """One answer, on whichever way it is given."""

    __slots__ = ("caller", "request_id", "status", "to", "whole")

    def __init__(self, scope: Scope, to: Send, request_id: str) -> None:
        self.to = to
        offered = scope.get("extensions", {})
        self.whole = (
            offered[RESPONDER_EXTENSION]["answer"] if RESPONDER_EXTENSION in offered else None
        )
        self.request_id = request_id
        self.status = 0
        self.caller: Principal | None = None

    async def send(self, status: int, body: bytes, more: Headers | None = None) -> None:
        self.status = status
        headers = [JSON, (b"content-length", b"%d" % len(body)), self.mark()]
        headers += more or []
        if self.whole is not None:
            await self.whole(status, headers, body)
            return
        await self.to({"type": "http.response.start", "status": status, "headers": headers})
        await self.to({"type": "http.response.body", "body": body})

    async def send_marked(self, message: Message) -> None:
        """What FastAPI sends, with the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], self.mark()]
            early = self.whole is not None and self.whole.cycle.more_body
            if early and CLOSE not in message["headers"]:
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
        """Only if nothing was sent: half an answer cannot become another one."""
        if not self.status:
            await self.send(500, encode_internal_error(self.request_id))


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
