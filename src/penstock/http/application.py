"""Builds the ASGI app from the hot operations and the FastAPI routes."""

from functools import cache
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from structlog.typing import FilteringBoundLogger

from penstock.errors import (
    InvalidInput,
    Malformed,
    MethodNotAllowed,
    NotFound,
    PenstockError,
    StoreError,
)
from penstock.http.asgi import OTHER, AsgiApp, make_error_headers
from penstock.http.context import KEY, RequestContext
from penstock.http.errors import encode_error, encode_internal_error, find_status
from penstock.http.handlers.access import access
from penstock.http.handlers.artifacts import artifacts
from penstock.http.handlers.bulk import bulk
from penstock.http.handlers.callbacks import callbacks
from penstock.http.handlers.events import events
from penstock.http.handlers.messages import messages
from penstock.http.handlers.queues import queues, scopes
from penstock.http.handlers.schedules import schedules
from penstock.http.handlers.subscriptions import subscriptions
from penstock.http.handlers.system import system
from penstock.http.openapi import make_document
from penstock.http.routing import Route
from penstock.http.state import ServerState

PARTS = (
    scopes,
    queues,
    bulk,
    artifacts,
    callbacks,
    messages,
    schedules,
    subscriptions,
    events,
    system,
    access,
)
log: FilteringBoundLogger = structlog.get_logger()


def make_app(service: ServerState) -> AsgiApp:
    return AsgiApp(service, make_fastapi_app())


def make_fastapi_app() -> FastAPI:
    """Makes the app of all routes but the hot ones. Each request brings its RequestContext."""
    app = FastAPI(title="Penstock", version=version("penstock"), redirect_slashes=False,
                  docs_url=None, redoc_url=None)  # fmt: skip
    routes: dict[str, list[Route]] = {}
    for part in PARTS:
        routes.setdefault(part.tag, []).extend(part.all)
        for route in part.all:
            app.add_api_route(
                route.path,
                route.endpoint,
                methods=[route.method],
                summary=route.summary,
                tags=[part.tag],
                response_model=None,
                status_code=route.status,
            )
    app.add_exception_handler(PenstockError, handle_penstock_error)
    app.add_exception_handler(RequestValidationError, handle_invalid_request)
    app.add_exception_handler(HTTPException, handle_http_exception)
    app.add_exception_handler(Exception, handle_unexpected_error)

    @cache
    def openapi() -> dict[str, Any]:
        return make_document(app, routes)

    vars(app)["openapi"] = openapi
    return app


def answer(request: Request, error: PenstockError) -> Response:
    call: RequestContext = request.scope[KEY]
    if isinstance(error, StoreError):
        call.service.outages.report_failure("http", error)
    route = request.scope.get("route")
    path = OTHER if route is None else route.path
    call.service.refusals.note(call.caller, request.scope, path, error)
    status = find_status(error)
    headers = {name.decode(): value.decode() for name, value in make_error_headers(error, status)}
    return Response(
        encode_error(error, call.request_id), status, headers, media_type="application/json"
    )


async def handle_penstock_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return answer(request, error)


async def handle_invalid_request(request: Request, error: Exception) -> Response:
    """Answers what FastAPI found wrong with the path, the query or the headers."""
    assert isinstance(error, RequestValidationError)
    details = tuple((".".join(map(str, each["loc"][1:])), each["msg"]) for each in error.errors())
    invalid = InvalidInput("; ".join(f"{field}: {text}" for field, text in details))
    invalid.details = details
    return answer(request, invalid)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return answer(request, NotFound(f"no route {path!r}; /openapi.json lists them"))
    if error.status_code == 405:
        response = answer(request, MethodNotAllowed(f"{path} does not take {request.method}"))
        response.headers.update(error.headers or {})
        return response
    return answer(request, Malformed(str(error.detail)))


async def handle_unexpected_error(request: Request, error: Exception) -> Response:
    """AsgiApp logs the error."""
    call: RequestContext = request.scope[KEY]
    return Response(encode_internal_error(call.request_id), 500, media_type="application/json")
