"""Routes of the dashboard: its files, session, overview and stream of changes."""

from importlib.metadata import version
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from penstock.broker.liveness import is_gone
from penstock.broker.views import SavedView, SavedViews
from penstock.errors import Unauthenticated
from penstock.http.auth.authenticate import SessionProof
from penstock.http.auth.principal import OWNER, Principal, RightScope
from penstock.http.auth.request_credential import SESSION_COOKIE
from penstock.http.auth.tickets import SESSION_LIFETIME_S
from penstock.http.context import RequestContext
from penstock.http.dashboard.answers import describe_rights
from penstock.http.dashboard.change_stream import ChangeStream
from penstock.http.dashboard.files import read_web_file
from penstock.http.dashboard.overview import OverviewInputs, make_overview
from penstock.http.handlers.metrics import read_metrics
from penstock.http.handlers.system import list_own_queues, list_own_workers
from penstock.http.metrics.queue_stats import QueueSnapshot
from penstock.http.operations import OperationTable
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import EVERY
from penstock.rules.access import Right
from penstock.rules.masking import list_hidden
from penstock.wire.dashboard import (
    NewView,
    Overview,
    OverviewHour,
    SavedViewItem,
    SavedViewList,
    SessionView,
    SignIn,
    make_hour_view,
)
from penstock.wire.fields import FileName, Name, to_datetime

dashboard = OperationTable("dashboard", scoped=False)
# Nothing inline and nothing from elsewhere: a body that is shown can never run.
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'self'; form-action 'self';"
    " frame-ancestors 'none'; object-src 'none'"
)
# Redoc writes style elements and draws its logo from a data URL.
DOCS_POLICY = PAGE_POLICY + "; style-src 'self' 'unsafe-inline'; worker-src 'self' blob:"
PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-cache",
}
IMMUTABLE = "public, max-age=31536000, immutable"
encode_view = msgspec.json.Encoder().encode


def send_file(call: RequestContext, name: str, headers: dict[str, str]) -> Response:
    """Answers with a built file, compressed if the client takes it, or with 304."""
    found = read_web_file(name)
    headers = {**headers, "etag": found.etag, "vary": "accept-encoding"}
    if call.get_header(b"if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    content = found.content
    if "gzip" in (call.get_header(b"accept-encoding") or "") and found.compressed is not None:
        content = found.compressed
        headers["content-encoding"] = "gzip"
    return Response(content, headers=headers, media_type=found.media_type)


@dashboard.add("GET", "/", "Dashboard", "text/html", right=None, public=True)
async def get_dashboard(call: RequestContext) -> Response:
    """The web dashboard. It signs in with an API key if the server asks for one."""
    return send_file(call, "index.html", {**PAGE_HEADERS, "content-security-policy": PAGE_POLICY})


@dashboard.add("GET", "/docs", "Get the API explorer", "text/html", right=None, public=True)
async def get_api_explorer(call: RequestContext) -> Response:
    """A page that shows this API. It loads nothing from other servers."""
    return send_file(call, "docs.html", {**PAGE_HEADERS, "content-security-policy": DOCS_POLICY})


@dashboard.add(
    "GET", "/assets/{name}", "Get a file of the dashboard", "application/octet-stream",
    right=None, public=True,
)  # fmt: skip
async def get_asset(call: RequestContext, name: FileName) -> Response:
    """Names contain a hash of the content, so browsers may keep the files."""
    headers = {"cache-control": IMMUTABLE, "x-content-type-options": "nosniff"}
    return send_file(call, f"assets/{name}", headers)


@dashboard.add("GET", "/v1/session", "Get the caller and its rights", SessionView, right=None,
               public=True)  # fmt: skip
async def get_session(call: RequestContext) -> SessionView:
    """Answers callers without valid credentials with `signed_in` false."""
    authenticator = call.service.authenticator
    try:
        caller = await authenticator.recognise(call.asgi_scope)
        return make_session_view(call, caller, await authenticator.sign_session(call.asgi_scope))
    except Unauthenticated as error:
        has_cookie = SESSION_COOKIE in (call.get_header(b"cookie") or "")
        return SessionView(True, False, str(error) if has_cookie else "")


@dashboard.add("POST", "/v1/session", "Sign in", SessionView, takes=SignIn, right=None,
               public=True, example={"key": "psk_..."})  # fmt: skip
async def sign_in(call: RequestContext, given: SignIn) -> Response:
    """Sets a session cookie for 12 hours. It has the rights of the key as they are, and ends with
    the key."""
    proof = await call.service.authenticator.sign_in(given.key.strip(), call.asgi_scope)
    view = SessionView(call.service.authenticator.asks, True, csrf=proof.csrf if proof else None)
    response = Response(encode_view(view), media_type="application/json")
    if proof is not None:
        set_cookie(call, response, proof.token, SESSION_LIFETIME_S)
    return response


@dashboard.add("DELETE", "/v1/session", "Sign out", None, status=204, right=None, public=True)
async def sign_out(call: RequestContext) -> Response:
    """Deletes the session cookie."""
    response = Response(status_code=204)
    set_cookie(call, response, "", 0)
    return response


def set_cookie(call: RequestContext, response: Response, value: str, max_age: int) -> None:
    scope = call.asgi_scope
    secure = "https" in (scope.get("scheme"), call.get_header(b"x-forwarded-proto"))
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=max_age,
        path=scope.get("root_path") or "/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def make_session_view(
    call: RequestContext, caller: Principal, proof: SessionProof | None
) -> SessionView:
    able = call.service.store.capabilities
    return SessionView(
        call.service.authenticator.asks,
        True,
        subject=caller.subject,
        tenant=caller.tenant,
        grants=[str(grant) for grant in caller.access.grants],
        scopes=sorted(caller.access.scopes),
        csrf=proof.csrf if proof else None,
        expires_at=to_datetime(proof.expires_at) if proof else None,
        version=version("penstock"),
        engine=able.engine,
        durability=able.durability,
        build=read_web_file("index.html").etag.strip('"'),
        environment=call.service.environment,
    )


@dashboard.add("GET", "/v1/overview", "Get live figures of all queues", Overview, scoped=True,
               headers={"If-None-Match": "The ETag of the last answer."})  # fmt: skip
async def get_overview(
    call: RequestContext,
    limit: Annotated[int, Meta(ge=1, le=500, description="Maximum number of queues.")] = 100,
    contains: Annotated[
        str, Meta(max_length=128, description="Filter by a part of the queue name.")
    ] = "",
) -> Response:
    """The first call starts the counting. It stops a minute after the last one."""
    service = call.service
    figures = service.figures
    await figures.ask()
    snapshot = figures.counted or await service.counts.get_snapshot()
    now = await service.store.now()
    tag = (figures.number, figures.position, snapshot.at, service.directory.version)
    asked = f"{limit}-{contains.encode().hex()}"
    etag = f'W/"{"-".join(map(str, tag))}-{now // (5 * MICROS_PER_SECOND)}-{asked}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if call.get_header(b"if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    key = (describe_rights(call.caller, call.scope), asked)
    body = service.overviews.find(key, etag)
    if body is None:
        body = encode_view(make_overview(await read_overview(call, now, snapshot), limit, contains))
        service.overviews.keep(key, etag, body)
    return Response(body, headers=headers, media_type="application/json")


async def read_overview(
    call: RequestContext, now: Moment, snapshot: QueueSnapshot
) -> OverviewInputs:
    return OverviewInputs(
        now=now,
        queues=await list_own_queues(call),
        workers=[row for row in await list_own_workers(call) if not is_gone(row, now)],
        snapshot=snapshot,
        series=call.service.figures.series,
        failing_agents=list_failing_agents(call),
        shows_errors=lambda queue: "error" not in list_hidden(queue, call.reveals),
    )


@dashboard.add("GET", "/v1/overview/hour", "Get the last hour of all queues", OverviewHour,
               scoped=True)  # fmt: skip
async def get_overview_hour(call: RequestContext) -> OverviewHour:
    """Adds up the minutes of the 200 queues that worked last."""
    points = await call.service.last_hour.get(read_metrics(call), await list_own_queues(call))
    return make_hour_view(await call.service.store.now(), points)


def list_failing_agents(call: RequestContext) -> list[tuple[str, str]]:
    """Returns failing agents if the caller may list agents."""
    caller = call.caller
    if caller.tenant != OWNER or not caller.access.allows(Right.READ, EVERY):
        return []
    statuses = call.service.runner.statuses()
    return [(status.name, status.error) for status in statuses if status.error is not None]


@dashboard.add("GET", "/v1/changes", "Stream changes (SSE)", "text/event-stream")
async def stream_changes(call: RequestContext) -> ChangeStream:
    """Says what a page should fetch again: topics, and names of queues whose messages changed. At
    most two events per second."""
    await call.service.figures.ask()
    call.service.event_streams.take(call.caller)
    return ChangeStream(call)


views = OperationTable("views")


@views.add("GET", "/v1/views", "List saved views", SavedViewList, extent=RightScope.SCOPE)
async def list_views(call: RequestContext) -> SavedViewList:
    """Lists filters that were saved for everyone who may read the scope."""
    found = await get_views(call, Right.READ).list(scope=call.scope)
    return SavedViewList([make_view(each) for each in found])


@views.add("PUT", "/v1/views/{name}", "Save a view", SavedViewItem, takes=NewView,
           extent=RightScope.SCOPE, example={"filter": "state:dead queue:mail"})  # fmt: skip
async def save_view(call: RequestContext, name: Name, new: NewView) -> SavedViewItem:
    """Creates a view or replaces the one of that name."""
    view = SavedView(name, new.filter, call.caller.subject)
    return make_view(await get_views(call, Right.MANAGE).save(view, scope=call.scope))


@views.add("DELETE", "/v1/views/{name}", "Delete a view", None, status=204, extent=RightScope.SCOPE)
async def delete_view(call: RequestContext, name: Name) -> None:
    await get_views(call, Right.MANAGE).delete(name, scope=call.scope)


def get_views(call: RequestContext, right: Right) -> SavedViews:
    call.check(right, "*")
    return SavedViews(call.service.store, call.admin)


def make_view(view: SavedView) -> SavedViewItem:
    return SavedViewItem(view.name, view.filter, view.saved_by, to_datetime(view.saved_at))
