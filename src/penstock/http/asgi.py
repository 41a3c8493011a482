"""The ASGI entry point: finds the operation of a request, and answers it or its error."""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec
import structlog
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from penstock.errors import (
    BodyTooLarge,
    MethodNotAllowed,
    PenstockError,
    StoreError,
    Unauthenticated,
)
from penstock.http.auth.principal import Principal
from penstock.http.context import (
    CLOSE,
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
    wait_for_disconnect,
)
from penstock.http.cors import is_preflight
from penstock.http.errors import RETRY_AFTER, encode_error, encode_internal_error, find_status
from penstock.http.operations import VERBS, Operation, OperationIndex
from penstock.http.routes import OPERATIONS
from penstock.http.state import ServerState
from penstock.model.documents import acting
from penstock.rules.access import Access, Right
from penstock.runner import make_identity

log: FilteringBoundLogger = structlog.get_logger()
encode = msgspec.json.Encoder().encode
JSON = (b"content-type", b"application/json")
NO_HEADERS: Headers = []
MAX_REQUEST_ID_LENGTH = 128
ANONYMOUS = Principal("nobody", "default", Access(()))


class AsgiApp:
    def __init__(self, service: ServerState) -> None:
        self.service = service
        self.index = OperationIndex(OPERATIONS)
        self.name = make_identity()
        self.numbers = itertools.count(1)
        self.at_edge = service.proxies is not None or service.cors is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        began = time.perf_counter()
        answer = AsgiResponse(scope, receive, send, self.request_id(scope["headers"]))
        if self.at_edge and await self.pass_edge(scope, answer):
            return
        # A connection may carry over what the request before it set.
        if acting.get() is not None:
            acting.set(None)
        path = route_path_of(scope)
        operation, values = self.index.find(scope["method"], path)
        template = operation.path if operation else self.index.find_template(path)
        try:
            public = operation is not None and operation.public and self.service.authenticator.asks
            caller = ANONYMOUS if public else await self.service.authenticator.admit(scope)
            answer.caller = caller
            call = RequestContext(
                self.service, caller, answer.request_id, scope, receive, answer.responder
            )
            call.path = path
            await self.serve(operation, call, values, answer)
        except ClientDisconnected:
            return
        except PenstockError as error:
            self.note_error(error, answer.caller, scope, template)
            await answer.refuse(error)
        except Exception as error:
            log.error("request_failed", request=answer.request_id, path=template,
                      exc_info=error)  # fmt: skip
            await answer.fail()
        self.service.metrics.observe_request(template, answer.status, time.perf_counter() - began)

    async def pass_edge(self, scope: Scope, answer: "AsgiResponse") -> bool:
        """Finds the client behind a proxy and the origin of a page. True if that is all there is
        to answer."""
        if self.service.proxies is not None:
            scope["client"] = self.service.proxies.client_of(scope)
        cors = self.service.cors
        if cors is None or (origin := cors.find_origin(scope)) is None:
            return False
        answer.headers = cors.make_headers(origin)
        if is_preflight(scope):
            await answer.send(204, None, cors.make_preflight_headers(scope))
            return True
        return False

    def note_error(
        self, error: PenstockError, caller: Principal | None, scope: Scope, template: str
    ) -> None:
        if isinstance(error, StoreError):
            self.service.outages.report_failure("http", error)
        self.service.denial_log.note(caller, scope, template, error)

    async def serve(
        self,
        operation: Operation | None,
        call: RequestContext,
        path: dict[str, str],
        answer: "AsgiResponse",
    ) -> None:
        """Checks the requirement before anything else of the request is read."""
        if operation is None:
            raise self.index.explain_missing(call.asgi_scope["method"], call.path)
        call.caller.check_requirement(operation.requires)
        if call.caller.verbs is not None and operation.requires.right is Right.CONSUME:
            call.caller.check_verb(operation.path)
        call.right = operation.requires.right
        arguments, query = operation.defaults, call.asgi_scope["query_string"]
        if query or arguments is None:
            arguments, call.scope = operation.read_parameters(query, path)
        if operation.audited:
            call.audit(operation.summary, call.scope if operation.scoped else "")
        if operation.decode is None:
            given = await operation.handler(call, *arguments)
        else:
            sent = operation.read_body(await call.body())
            given = await operation.handler(call, *arguments, sent)
        if isinstance(given, Response):
            await given(call.asgi_scope, call.receive, answer.send_marked)
            return
        if operation.tag == VERBS:
            self.service.outages.report_success("http")
        await answer.send(operation.status, None if given is None else encode(given))

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
    """The answer to one request."""

    __slots__ = ("caller", "headers", "request_id", "responder", "status", "to")

    def __init__(self, scope: Scope, receive: Receive, to: Send, request_id: str) -> None:
        self.to = to
        offered = (scope.get("extensions") or {}).get(RESPONDER_EXTENSION)
        self.responder: Responder = (
            AsgiResponder(receive, to) if offered is None else offered["responder"]
        )
        self.request_id = request_id
        self.status = 0
        self.caller: Principal | None = None
        # Sent with every answer.
        self.headers: Headers = NO_HEADERS

    async def send(self, status: int, body: bytes | None, more: Headers | None = None) -> None:
        """Sends JSON, or a response without a body."""
        self.status = status
        headers = [self.mark()]
        if body is not None:
            headers += JSON, (b"content-length", b"%d" % len(body))
        if self.headers or more:
            headers += [*self.headers, *(more or ())]
        await self.responder(status, headers, body or b"")

    async def send_marked(self, message: Message) -> None:
        """Passes on the messages of a Response, with the request id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self.headers, self.mark()]
            if self.responder.has_unread_body and CLOSE not in message["headers"]:
                message["headers"].append(CLOSE)
        await self.to(message)

    def mark(self) -> tuple[bytes, bytes]:
        return b"x-request-id", self.request_id.encode()

    async def refuse(self, error: PenstockError) -> None:
        """Answers with an error, unless an answer has begun: then the connection is cut."""
        if self.status:
            log.warning("response_aborted", request=self.request_id, error=str(error))
            return
        status = find_status(error)
        await self.send(
            status, encode_error(error, self.request_id), make_error_headers(error, status)
        )

    async def fail(self) -> None:
        """Answers with 500, unless an answer has begun."""
        if not self.status:
            await self.send(500, encode_internal_error(self.request_id))


def make_error_headers(error: PenstockError, status: int) -> Headers:
    headers: Headers = []
    if status in RETRY_AFTER:
        headers.append((b"retry-after", RETRY_AFTER[status]))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers += [(name.encode(), value.encode()) for name, value in error.details]
    if isinstance(error, BodyTooLarge):
        # The rest of the body is not read.
        headers.append(CLOSE)
    return headers
