"""The verbs of producers over HTTP."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from penstock.access import Right
from penstock.callback import check_url
from penstock.errors import Forbidden, InvalidInput, PenstockError
from penstock.http.call import Call
from penstock.http.events import PUBLISHED, Event, Told
from penstock.message import Draft
from penstock.publisher import answer
from penstock.settings import SHELL_TYPE
from penstock.ticket import Published
from penstock.wire.publish import (
    Accepted,
    Problem,
    Publish,
    PublishMany,
    PublishOutcome,
    PublishOutcomes,
    draft_of,
)

FEW = 100
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


async def publish(call: Call, sent: Publish) -> Accepted:
    draft = traced(call, draft_of(sent))
    refuse_unfit(call, draft)
    published = await call.broker.publish(draft, scope=call.scope)
    tell(call, (draft,), (published,))
    return Accepted(str(published.id), published.duplicate)


async def publish_many(call: Call, sent: PublishMany) -> PublishOutcomes:
    drafts = [traced(call, draft_of(each)) for each in sent.messages]
    for draft in drafts:
        refuse_shell(call, draft.type, draft.queue)
    published = await publish_fit(call, drafts, sent.atomic)
    tell(call, drafts, published)
    items = [outcome_of(each) for each in published]
    refused = sum(item.error is not None for item in items)
    return PublishOutcomes(items, len(items) - refused, refused)


async def publish_fit(call: Call, drafts: Sequence[Draft], atomic: bool) -> list[Published]:
    """Those whose callbacks this server would not send answer for themselves."""
    refused = {place: why for place, draft in enumerate(drafts) if (why := unfit(call, draft))}
    if not refused:
        return await call.broker.publish_many(drafts, atomic=atomic, scope=call.scope)
    if atomic:
        raise next(iter(refused.values()))
    fit = [draft for place, draft in enumerate(drafts) if place not in refused]
    stored = iter(await call.broker.publish_many(fit, scope=call.scope))
    return [
        answer(draft, refused[place]) if place in refused else next(stored)
        for place, draft in enumerate(drafts)
    ]


def refuse_unfit(call: Call, draft: Draft) -> None:
    """What a store would take, and this server does not."""
    refuse_shell(call, draft.type, draft.queue)
    if (why := unfit(call, draft)) is not None:
        raise why


def unfit(call: Call, draft: Draft) -> PenstockError | None:
    """Not for this caller, or its callback leads to where this server does not send."""
    try:
        call.check(Right.PUBLISH, draft.queue)
        if draft.callback is not None:
            check_url("callback", draft.callback)
            call.service.limits.reach.refuse("callback", draft.callback)
    except (Forbidden, InvalidInput) as error:
        return error
    return None


def refuse_shell(call: Call, type: str, queue: str) -> None:
    """Whoever reaches the service must not thereby run commands on its workers."""
    if type == SHELL_TYPE:
        if not call.service.limits.allow_shell:
            raise Forbidden("shell jobs are not taken over HTTP, unless by serve --allow-shell")
        call.check(Right.SHELL, queue)


def traced(call: Call, draft: Draft) -> Draft:
    """It belongs to the trace of its request, unless it says another."""
    if draft.traceparent is None:
        for name, value in call.headers:
            if name == b"traceparent" and TRACEPARENT.fullmatch(value):
                return msgspec.structs.replace(draft, traceparent=value.decode())
    return draft


def outcome_of(published: Published) -> PublishOutcome:
    if published.code is None:
        return PublishOutcome(str(published.id), published.duplicate)
    return PublishOutcome(error=Problem(published.code, published.error or published.code))


def tell(call: Call, drafts: Sequence[Draft], published: Sequence[Published]) -> None:
    """Counts them, and announces them to whoever listens."""
    metrics, hub = call.service.metrics, call.service.hub
    # Of many at once listeners hear page by page, by the follower.
    few = len(drafts) <= FEW
    for draft, each in zip(drafts, published, strict=True):
        if each.code is not None:
            metrics.count(metrics.refused, each.code)
        elif not each.duplicate:
            metrics.count(metrics.published, metrics.queue(draft.queue))
            if few and hub.listeners:
                hub.announce(announcement(call, draft, each), each.id)
    call.service.nudge()


def announcement(call: Call, draft: Draft, published: Published) -> Told:
    event = Event(
        PUBLISHED,
        datetime.now(UTC),
        call.scope,
        draft.queue,
        str(published.id),
        draft.type,
        correlation_id=draft.correlation_id,
    )
    return Told(event, call.caller.tenant)
