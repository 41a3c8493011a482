"""Links that decide a human step: makes them, and serves the page behind them."""

import secrets
from contextlib import suppress
from hmac import compare_digest
from typing import Annotated, Any
from urllib.parse import parse_qsl

from msgspec import Meta
from starlette.responses import HTMLResponse

from penstock.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    InvalidToken,
    NotFound,
    PenstockError,
)
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext
from penstock.http.human_page import (
    HEADERS,
    render_choice_made,
    render_decision,
    render_form,
    render_note,
)
from penstock.http.operations import OperationTable
from penstock.model.documents import AuditEntry, acting
from penstock.model.human import HumanSpec
from penstock.model.message import MICROS_PER_SECOND, State
from penstock.rules.access import Right
from penstock.rules.human import InboxStep, Person, find_choice
from penstock.rules.human_links import HumanLink, HumanLinks
from penstock.wire.fields import Id, to_datetime
from penstock.wire.human import LinkRequest, LinkView

human_links = OperationTable("inbox")
LinkToken = Annotated[str, Meta(max_length=2_000, description="From the link.")]
NONCE_COOKIE = "penstock_nonce"
FORM = "application/x-www-form-urlencoded"


@human_links.add(
    "POST", "/v1/inbox/{id}/links", "Create a link to decide a human step", LinkView,
    takes=LinkRequest, status=201, right=Right.ACCESS, extent=RightScope.SCOPE,
    example={"person": "ann@example.org"},
)  # fmt: skip
async def make_human_link(call: RequestContext, id: Id, sent: LinkRequest) -> LinkView:
    """The link decides as that person, once. It is not stored."""
    call.check(Right.ACCESS, "*")
    everyone = Person(call.caller.subject, acts_for_all=True)
    found = await call.broker.inbox.get(int(id), everyone, scope=call.scope)
    now = await call.broker.now()
    expires_at = now + int(sent.expires_in * MICROS_PER_SECOND)
    link = HumanLink(call.caller.tenant, call.scope, int(id), sent.person, expires_at)
    token = make_links(call).make(link, found.step.spec)
    url = f"{call.service.limits.public_url}/v1/decide/{token}"
    return LinkView(url, to_datetime(expires_at))


def make_links(call: RequestContext) -> HumanLinks:
    return HumanLinks(call.service.tokens.secret)


@human_links.add(
    "GET", "/v1/decide/{token}", "Show the decision form", "text/html",
    right=None, public=True, scoped=False,
)  # fmt: skip
async def show_human_step(call: RequestContext, token: LinkToken) -> HTMLResponse:
    """Shows the form. Opening it decides nothing."""
    call.limit_token(token)
    try:
        link, found = await open_link(call, token)
    except PenstockError as error:
        return make_page(render_note("This link does not work", str(error)), 404)
    return show_step(call, link, token, found)


@human_links.add(
    "POST", "/v1/decide/{token}", "Submit the decision form", "text/html",
    takes=FORM, right=None, public=True, scoped=False,
)  # fmt: skip
async def decide_by_link(call: RequestContext, token: LinkToken) -> HTMLResponse:
    """The form carries the nonce and the cookie that it was shown with."""
    call.limit_token(token)
    try:
        link, found = await open_link(call, token)
        form = dict(parse_qsl((await call.body()).decode(), keep_blank_values=True))
        check_nonce(call, token, form.get("nonce", ""))
        check_login(found)
    except PenstockError as error:
        return make_page(render_note("This link does not work", str(error)), 403)
    try:
        await decide_step(call, link, found, form)
    except InvalidInput as error:
        return show_step(call, link, token, found, str(error))
    except Forbidden as error:
        return make_page(render_note(found.step.spec.title, str(error)), 403)
    return show_step(call, link, token, (await open_link(call, token))[1])


async def decide_step(
    call: RequestContext, link: HumanLink, found: InboxStep, form: dict[str, str]
) -> None:
    """Decides as the person of the link. What this person or another decided stays as it is."""
    act = AuditEntry(
        subject=link.person,
        tenant=link.tenant,
        scope=link.scope,
        verb="Decide a human step by a link",
        target=f"/v1/inbox/{link.id}",
        request_id=call.request_id,
    )
    acting.set(act)
    with suppress(Conflict):
        await call.service.get_broker(link.tenant).inbox.decide(
            link.id,
            Person(link.person),
            form.get("choice", ""),
            inputs=read_inputs(found.step.spec, form),
            comment=form.get("comment", ""),
            scope=link.scope,
        )


async def open_link(call: RequestContext, token: str) -> tuple[HumanLink, InboxStep]:
    """Returns the step of a valid link."""
    links = make_links(call)
    link = links.read(token)
    inbox = call.service.get_broker(link.tenant).inbox
    try:
        found = await inbox.get(link.id, Person("", sees_all=True), scope=link.scope)
    except NotFound:
        raise InvalidToken("this link is not valid") from None
    links.verify(token, found.step.spec)
    if found.state is State.SCHEDULED and await call.broker.now() >= link.expires_at:
        raise InvalidToken("this link has expired")
    return link, found


def check_login(found: InboxStep) -> None:
    if must_log_in(found.step.spec):
        raise Forbidden("this decision needs a login; open it in the dashboard")


def must_log_in(spec: HumanSpec) -> bool:
    return spec.approvals > 1 if spec.require_login is None else spec.require_login


def check_nonce(call: RequestContext, token: str, nonce: str) -> None:
    seed = read_cookie(call, NONCE_COOKIE)
    expected = make_links(call).make_nonce(token, seed)
    if not seed or not compare_digest(nonce.encode(), expected.encode()):
        raise Forbidden("this form is not from the page of this link; open the link again")


def read_cookie(call: RequestContext, name: str) -> str:
    for pair in (call.get_header(b"cookie") or "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def show_step(
    call: RequestContext, link: HumanLink, token: str, found: InboxStep, problem: str = ""
) -> HTMLResponse:
    spec = found.step.spec
    if found.decision is not None:
        return make_page(render_decision(spec, found.decision))
    if found.state is not State.SCHEDULED:
        return make_page(render_note(spec.title, f"This step is {found.state}."), 410)
    if (choice := find_choice(found.step, link.person)) is not None:
        return make_page(render_choice_made(spec, choice))
    if must_log_in(spec):
        text = "Log in to the dashboard to decide."
        several = "Several people must agree. " if spec.approvals > 1 else ""
        return make_page(render_note(spec.title, several + text))
    seed = secrets.token_hex(16)
    nonce = make_links(call).make_nonce(token, seed)
    page = make_page(render_form(spec, nonce, problem), 422 if problem else 200)
    page.set_cookie(
        NONCE_COOKIE, seed, path=call.path, httponly=True, samesite="strict", max_age=3_600
    )
    return page


def make_page(text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(text, status, HEADERS)


def read_inputs(spec: HumanSpec, form: dict[str, str]) -> dict[str, Any]:
    """Returns the inputs of a form with their types. Empty fields are left out."""
    inputs: dict[str, Any] = {}
    for name, field in spec.input.items():
        text = form.get(f"input.{name}", "")
        if field.type == "boolean":
            inputs[name] = text == "true"
        elif text:
            inputs[name] = read_number(name, text) if field.type != "string" else text
    return inputs


def read_number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise InvalidInput(f"input {name!r} is {text[:60]!r}; it must be a number") from None
