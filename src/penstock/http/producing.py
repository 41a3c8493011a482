"""The verbs of producers over HTTP."""

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.errors import Forbidden
from penstock.http.call import Call
from penstock.http.events import PUBLISHED, Event, Told
from penstock.message import Draft
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


async def publish(call: Call, sent: Publish) -> Accepted:
    draft = draft_of(sent)
    refuse_shell(call, draft.type)
    published = await call.broker.publish(draft, scope=call.scope)
    tell(call, (draft,), (published,))
    return Accepted(str(published.id), published.duplicate)


async def publish_many(call: Call, sent: PublishMany) -> PublishOutcomes:
    drafts = [draft_of(each) for each in sent.messages]
    for draft in drafts:
        refuse_shell(call, draft.type)
    published = await call.broker.publish_many(drafts, atomic=sent.atomic, scope=call.scope)
    tell(call, drafts, published)
    items = [outcome_of(each) for each in published]
    refused = sum(item.error is not None for item in items)
    return PublishOutcomes(items, len(items) - refused, refused)


def refuse_shell(call: Call, type: str) -> None:
    """Whoever reaches the service must not thereby run commands on its workers."""
    if type == SHELL_TYPE and not call.service.limits.allow_shell:
        raise Forbidden("shell jobs are not taken over HTTP, unless by serve --allow-shell")


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
