"""Declares the FastAPI routes: request and response types, required right, example."""

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Depends, Path, Query, Request, Response
from msgspec import Struct

from penstock.http.auth.principal import Extent, Requirement
from penstock.http.context import KEY, RequestContext, route_path_of
from penstock.http.errors import make_malformed_error
from penstock.model.fields import NAME_PATTERN
from penstock.rules.access import Right

NAME = rf"^{NAME_PATTERN}$"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Any]])
encode = msgspec.json.Encoder().encode
RIGHTS = {"GET": Right.READ}
REQUIRES = "requires"


class Route(Struct, frozen=True):
    """`takes` and `gives` are wire types or media types."""

    method: Method
    path: str
    summary: str
    gives: Any
    endpoint: Callable[..., Awaitable[Any]]
    requires: Requirement
    takes: Any = None
    status: int = 200
    example: Any = None
    # Other success statuses, without a body.
    also: dict[int, str] = {}


class RouteTable:
    """Collects the routes of one OpenAPI tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Route] = []

    def add(
        self,
        method: Method,
        path: str,
        summary: str,
        gives: Any,
        *,
        takes: Any = None,
        status: int = 200,
        example: Any = None,
        also: dict[int, str] | None = None,
        # None admits every authenticated caller.
        right: Right | Literal["by method"] | None = "by method",
        extent: Extent = Extent.QUEUE,
    ) -> Callable[[Endpoint], Endpoint]:
        def declare(endpoint: Endpoint) -> Endpoint:
            needed = RIGHTS.get(method, Right.MANAGE) if right == "by method" else right
            requires = Requirement(needed, extent)
            answers = make_endpoint(endpoint, status, requires, summary)
            more = (takes, status, example, also or {})
            self.all.append(Route(method, path, summary, gives, answers, requires, *more))
            return endpoint

        return declare


def make_endpoint(
    endpoint: Callable[..., Awaitable[Any]], status: int, requires: Requirement, summary: str
) -> Callable[..., Any]:
    """Wraps an endpoint so that its value is sent as JSON. None is sent without a body."""

    @functools.wraps(endpoint)
    async def answer(call: RequestContext, **kwargs: Any) -> Response:
        given = await endpoint(call, **kwargs)
        if isinstance(given, Response):
            return given
        if given is None:
            return Response(status_code=status)
        return Response(encode(given), status, media_type="application/json")

    vars(answer)[REQUIRES] = requires, summary
    return answer


async def call_alone(request: Request) -> RequestContext:
    """Enters a route that belongs to no single scope."""
    return enter(request, "")


def enter(request: Request, scope: str) -> RequestContext:
    """Checks the route's requirement before anything else of the request is read."""
    call: RequestContext = request.scope[KEY]
    call.path = route_path_of(request.scope)
    required, summary = vars(request.scope["endpoint"])[REQUIRES]
    call.enter(required, summary, scope)
    return call


async def get_context(
    request: Request,
    scope: Annotated[
        str, Query(pattern=NAME, description="The scope (namespace) of the queues.")
    ] = "default",
) -> RequestContext:
    call: RequestContext = request.scope[KEY]
    call.scope = scope
    return enter(request, scope)


def make_body_dependency(kind: Any) -> Any:
    """Decodes the body as `kind`. An empty body counts as `{}`."""
    decode = msgspec.json.Decoder(kind).decode

    async def read(request: Request) -> Any:
        call: RequestContext = request.scope[KEY]
        try:
            return decode(await call.body() or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise make_malformed_error(error) from None

    return Depends(read)


Called = Annotated[RequestContext, Depends(get_context)]
QueueName = Annotated[str, Path(pattern=NAME, description="The name.")]
Reference = Annotated[
    str, Path(min_length=1, max_length=400, description="A message id, or `queue/name`.")
]


Alone = Annotated[RequestContext, Depends(call_alone)]
