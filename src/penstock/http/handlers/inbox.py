"""Operations of the inbox: human steps and their patterns."""

from msgspec.structs import replace

from penstock.broker.waiting.human_webhooks import HumanWebhooks
from penstock.broker.waiting.inbox import Inbox
from penstock.errors import Forbidden, InvalidInput
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.human_page import render_markdown
from penstock.http.operations import OperationTable
from penstock.model.human import HumanPattern, HumanSpec
from penstock.model.human_webhooks import HumanWebhookState, HumanWebhookStatus
from penstock.model.queue import HUMAN
from penstock.rules.access import Right
from penstock.rules.human import InboxStep, Person, check_decider
from penstock.rules.human_spec import parse_spec
from penstock.wire.fields import Cursor, Id, Name, PageLimit
from penstock.wire.human import (
    CommentRequest,
    DecideRequest,
    DelegateRequest,
    HumanPatternList,
    HumanPatternView,
    HumanSteps,
    HumanStepView,
    NewHumanPattern,
    NewHumanStep,
    NewHumanStepResponse,
    StatisticsView,
    View,
    make_pattern_view,
    make_statistics_view,
    make_step_view,
)
from penstock.wire.human_webhooks import (
    HumanWebhookList,
    HumanWebhookView,
    NewHumanWebhook,
    WebhookName,
    make_webhook_view,
)

inbox = OperationTable("inbox")


def make_person(call: RequestContext) -> Person:
    access = call.caller.access
    return Person(
        call.caller.subject,
        call.caller.roles,
        sees_all=access.allows(Right.READ, call.scope, HUMAN),
        acts_for_all=access.allows(Right.DECIDE, call.scope, HUMAN),
    )


def get_inbox(call: RequestContext) -> Inbox:
    return call.broker.inbox


def show_step(call: RequestContext, found: InboxStep) -> HumanStepView:
    """Adds what a page needs: the content as HTML, and why the caller may not decide."""
    refusal = ""
    try:
        check_decider(found.step, make_person(call))
    except Forbidden as error:
        refusal = str(error)
    content = render_markdown(found.step.spec.content) if found.step.spec.content else ""
    return replace(make_step_view(found), content_html=content, refusal=refusal)


@inbox.add("GET", "/v1/inbox", "List human steps", HumanSteps, right=None)
async def list_human_steps(
    call: RequestContext, view: View = "roles", limit: PageLimit = 50, cursor: Cursor | None = None
) -> HumanSteps:
    """Lists open steps, those that time out first."""
    found = await get_inbox(call).list_steps(make_person(call), view=view, scope=call.scope)
    page, next_cursor = cut_page(call, found, sort_key, limit, cursor, "inbox", view)
    return HumanSteps([show_step(call, each) for each in page], next_cursor)


def sort_key(found: InboxStep) -> str:
    return f"{found.step.times_out_at:020d}{found.step.id:020d}"


@inbox.add(
    "POST", "/v1/inbox", "Request a decision", NewHumanStepResponse, takes=NewHumanStep,
    status=201, right=Right.PUBLISH,
    example={"pattern": "refund-over-500", "parameters": {"order": 7, "amount": 650}},
)  # fmt: skip
async def request_decision(call: RequestContext, new: NewHumanStep) -> NewHumanStepResponse:
    call.check(Right.PUBLISH, HUMAN)
    published = await get_inbox(call).request(
        await read_spec(call, new),
        scope=call.scope,
        requester=call.caller.subject,
        correlation_id=new.correlation_id,
        name=new.name,
    )
    return NewHumanStepResponse(str(published.id))


async def read_spec(call: RequestContext, new: NewHumanStep) -> HumanSpec:
    spec, pattern = new.spec or new.hitl_spec, new.pattern or new.hitl_pattern
    if (spec is None) is (pattern is None):
        raise InvalidInput("give either spec, or pattern with its parameters")
    if spec is not None:
        return parse_spec(spec)
    assert pattern is not None
    given = {**new.params, **new.parameters}
    return await get_inbox(call).patterns.expand(pattern, given, scope=call.scope)


@inbox.add("GET", "/v1/inbox/statistics", "Count human steps", StatisticsView)
async def count_human_steps(call: RequestContext) -> StatisticsView:
    call.check(Right.READ, HUMAN)
    return make_statistics_view(await get_inbox(call).count(scope=call.scope))


@inbox.add("GET", "/v1/inbox/{id}", "Get a human step", HumanStepView, right=None)
async def get_human_step(call: RequestContext, id: Id) -> HumanStepView:
    found = await get_inbox(call).get(int(id), make_person(call), scope=call.scope)
    return show_step(call, found)


@inbox.add(
    "POST", "/v1/inbox/{id}/decide", "Decide a human step", HumanStepView,
    takes=DecideRequest, right=None,
    example={"choice": "approve", "comment": "Fine."},
)  # fmt: skip
async def decide_human_step(call: RequestContext, id: Id, sent: DecideRequest) -> HumanStepView:
    """The first decision counts: later ones are answered 409 ALREADY_DECIDED."""
    call.audit("Decide a human step", call.scope)
    found = await get_inbox(call).decide(
        int(id),
        make_person(call),
        sent.choice,
        inputs=sent.inputs,
        comment=sent.comment,
        scope=call.scope,
    )
    return show_step(call, found)


@inbox.add("POST", "/v1/inbox/{id}/claim", "Claim a human step", HumanStepView, right=None)
async def claim_human_step(call: RequestContext, id: Id) -> HumanStepView:
    """Shows other people for 30 minutes that the caller is working on it."""
    person = make_person(call)
    return show_step(call, await get_inbox(call).claim(int(id), person, scope=call.scope))


@inbox.add("POST", "/v1/inbox/{id}/release", "Release a human step", HumanStepView, right=None)
async def release_human_step(call: RequestContext, id: Id) -> HumanStepView:
    person = make_person(call)
    return show_step(call, await get_inbox(call).release(int(id), person, scope=call.scope))


@inbox.add(
    "POST", "/v1/inbox/{id}/delegate", "Delegate a human step", HumanStepView,
    takes=DelegateRequest, right=None, example={"to": "jwt:bob"},
)  # fmt: skip
async def delegate_human_step(call: RequestContext, id: Id, sent: DelegateRequest) -> HumanStepView:
    """The delegate decides in place of this caller, and counts as this caller."""
    call.audit("Delegate a human step", call.scope)
    person = make_person(call)
    found = await get_inbox(call).delegate(int(id), person, sent.to, scope=call.scope)
    return show_step(call, found)


@inbox.add(
    "POST", "/v1/inbox/{id}/comment", "Comment on a human step", HumanStepView,
    takes=CommentRequest, right=None, example={"text": "Waiting for the invoice."},
)  # fmt: skip
async def comment_on_human_step(
    call: RequestContext, id: Id, sent: CommentRequest
) -> HumanStepView:
    person = make_person(call)
    found = await get_inbox(call).comment(int(id), person, sent.text, scope=call.scope)
    return show_step(call, found)


# Patterns.


@inbox.add("GET", "/v1/human-patterns", "List patterns of human steps", HumanPatternList)
async def list_human_patterns(call: RequestContext) -> HumanPatternList:
    call.check(Right.READ, HUMAN)
    found = await get_inbox(call).patterns.list_patterns(scope=call.scope)
    return HumanPatternList([make_pattern_view(each) for each in found])


@inbox.add("GET", "/v1/human-patterns/{name}", "Get a pattern of human steps", HumanPatternView)
async def get_human_pattern(call: RequestContext, name: Name) -> HumanPatternView:
    call.check(Right.READ, HUMAN)
    return make_pattern_view(await get_inbox(call).patterns.get(name, scope=call.scope))


@inbox.add(
    "PUT", "/v1/human-patterns/{name}", "Save a pattern of human steps", HumanPatternView,
    takes=NewHumanPattern,
    example={"spec": {"title": "Refund {{amount}}?", "assign": {"roles": ["finance"]}}},
)  # fmt: skip
async def save_human_pattern(
    call: RequestContext, name: Name, sent: NewHumanPattern
) -> HumanPatternView:
    """Each save makes a new version. Open steps keep the text they were made from."""
    call.check(Right.MANAGE, HUMAN)
    pattern = HumanPattern(name=name, spec=sent.spec, description=sent.description)
    return make_pattern_view(await get_inbox(call).patterns.save(pattern, scope=call.scope))


@inbox.add(
    "DELETE", "/v1/human-patterns/{name}", "Delete a pattern of human steps", None, status=204
)
async def delete_human_pattern(call: RequestContext, name: Name) -> None:
    call.check(Right.MANAGE, HUMAN)
    await get_inbox(call).patterns.delete(name, scope=call.scope)


human_webhooks = OperationTable("inbox")


def make_webhooks(call: RequestContext) -> HumanWebhooks:
    call.check(Right.ACCESS, "*")
    return HumanWebhooks(call.service.store, call.caller.tenant)


@human_webhooks.add(
    "GET", "/v1/human-webhooks", "List webhooks about human steps", HumanWebhookList,
    right=Right.ACCESS, extent=RightScope.SCOPE,
)  # fmt: skip
async def list_human_webhooks(call: RequestContext) -> HumanWebhookList:
    found = await make_webhooks(call).list(scope=call.scope)
    return HumanWebhookList([make_webhook_view(each) for each in found])


@human_webhooks.add(
    "POST", "/v1/human-webhooks", "Create a webhook about human steps", HumanWebhookView,
    takes=NewHumanWebhook, status=201, right=Right.ACCESS, extent=RightScope.SCOPE,
    example={"name": "chat", "url": "https://example.org/hook"},
)  # fmt: skip
async def create_human_webhook(call: RequestContext, new: NewHumanWebhook) -> HumanWebhookView:
    """Sends `human.opened`, `human.reminded`, `human.escalated` and `human.decided` of new steps,
    signed according to Standard Webhooks, with a `text` for chats. With `links`, each assigned
    person has a link that decides."""
    call.service.limits.reach.refuse("url", new.url)
    if new.links and not call.service.limits.public_url:
        raise InvalidInput("links need the public URL of the server; start it with --public-url")
    made = await make_webhooks(call).add(new.name, new.url, links=new.links, scope=call.scope)
    return make_webhook_view(HumanWebhookStatus(made, HumanWebhookState()))


@human_webhooks.add(
    "DELETE", "/v1/human-webhooks/{name}", "Delete a webhook about human steps", None, status=204,
    right=Right.ACCESS, extent=RightScope.SCOPE,
)  # fmt: skip
async def delete_human_webhook(call: RequestContext, name: WebhookName) -> None:
    await make_webhooks(call).delete(name, scope=call.scope)
