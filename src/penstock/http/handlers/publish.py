"""The publish operations."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from penstock.broker.publish import answer
from penstock.errors import Forbidden, InvalidInput, PenstockError
from penstock.http.context import RequestContext
from penstock.http.events.hub import EncodedEvent, Event
from penstock.http.metrics.prometheus import count_values
from penstock.model.message import Dedup, Draft
from penstock.model.settings import SHELL_TYPE
from penstock.model.store_types import Published
from penstock.rules.access import Right
from penstock.rules.callbacks import check_url
from penstock.rules.events import PUBLISHED
from penstock.wire.publish import (
    PlainBatchRequest,
    PlainRequest,
    Problem,
    PublishBatchRequest,
    PublishOutcome,
    PublishOutcomes,
    PublishRequest,
    PublishResult,
    make_draft,
)

MAX_ANNOUNCED_EACH = 100
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# Leaves room for the position in a batch: a dedup key has at most 200 characters.
IDEMPOTENCY_KEY = re.compile(rb"[ -~]{1,190}")


async def publish(call: RequestContext, sent: PublishRequest | PlainRequest) -> PublishResult:
    draft = make_draft(sent, call.publisher)
    if (headers := read_headers(call)) is not None:
        draft = headers.add_to(draft)
    return await publish_draft(call, draft)


async def publish_draft(call: RequestContext, draft: Draft) -> PublishResult:
    refuse_unfit(call, draft)
    published = await call.broker.publish(draft, scope=call.scope)
    if not published.duplicate:
        metrics = call.service.metrics
        metrics.published.add(metrics.queue(draft.queue))
        announce(call, [(draft, published)])
    routed = list(published.routed) or UNSET
    return PublishResult(str(published.id), published.duplicate, routed)


async def publish_many(
    call: RequestContext, sent: PublishBatchRequest | PlainBatchRequest
) -> PublishOutcomes:
    drafts = [make_draft(each, call.publisher) for each in sent.messages]
    if (headers := read_headers(call)) is not None:
        drafts = [headers.add_to(draft, at) for at, draft in enumerate(drafts)]
    published = await publish_fit(call, drafts, sent.atomic)
    announce_one(call, drafts, published)
    items = [make_outcome(each) for each in published]
    refused = sum(item.error is not None for item in items)
    return PublishOutcomes(items, len(items) - refused, refused)


async def publish_fit(
    call: RequestContext, drafts: Sequence[Draft], atomic: bool
) -> list[Published]:
    """Publishes the drafts the caller may publish. The others get their error."""
    kinds = {announcement_key(draft): draft for draft in drafts}
    for type, queue, _ in kinds:
        refuse_shell(call, type, queue)
    unwanted = {kind: why for kind, draft in kinds.items() if (why := find_problem(call, draft))}
    if not unwanted:
        return await call.broker.publish_many(drafts, atomic=atomic, scope=call.scope)
    if atomic:
        raise next(iter(unwanted.values()))
    fit = [draft for draft in drafts if announcement_key(draft) not in unwanted]
    stored = iter(await call.broker.publish_many(fit, scope=call.scope))
    return [
        answer(draft, why) if (why := unwanted.get(announcement_key(draft))) else next(stored)
        for draft in drafts
    ]


def refuse_unfit(call: RequestContext, draft: Draft, scope: str | None = None) -> None:
    """Raises if the caller may not publish the draft or its callback URL is denied. The scope is
    that of the request, unless another one is given."""
    refuse_shell(call, draft.type, draft.queue, scope)
    if (why := find_problem(call, draft, scope)) is not None:
        raise why


def announcement_key(draft: Draft) -> tuple[str, str, str | None]:
    """Drafts with the same key are all permitted, or none of them is."""
    return draft.type, draft.queue, draft.callback


def find_problem(
    call: RequestContext, draft: Draft, scope: str | None = None
) -> PenstockError | None:
    """Returns the error of a forbidden queue or a denied callback URL."""
    try:
        call.check(Right.PUBLISH, draft.queue, scope)
        if draft.callback is not None:
            check_url("callback", draft.callback)
            call.service.limits.reach.refuse("callback", draft.callback)
    except (Forbidden, InvalidInput) as error:
        return error
    return None


def refuse_shell(call: RequestContext, type: str, queue: str, scope: str | None = None) -> None:
    """Publishing alone must not let a caller run commands on the workers."""
    if type == SHELL_TYPE:
        if not call.service.limits.allow_shell:
            raise Forbidden(
                "shell jobs are not accepted over HTTP; start the server with --allow-shell"
            )
        call.check(Right.SHELL, queue, scope)


class PublishHeaders(NamedTuple):
    """The headers that messages take over."""

    traceparent: str | None
    idempotency_key: str | None

    def add_to(self, draft: Draft, position: int | None = None) -> Draft:
        """Adds the trace unless the draft has its own, and the idempotency key. The messages of a
        batch get one key each, by their position."""
        if self.traceparent is not None and draft.traceparent is None:
            draft = replace(draft, traceparent=self.traceparent)
        if (key := self.idempotency_key) is None:
            return draft
        if draft.dedup is not None:
            raise InvalidInput("Idempotency-Key and dedup or unique are mutually exclusive")
        return replace(draft, dedup=Dedup(key if position is None else f"{key}#{position}"))


def read_headers(call: RequestContext) -> PublishHeaders | None:
    """Returns None if the request has none of the headers, as most have."""
    trace = key = None
    for name, value in call.headers:
        if name == b"traceparent" and TRACEPARENT.fullmatch(value):
            trace = value.decode()
        elif name == b"idempotency-key":
            key = value.decode("latin-1")
            if not IDEMPOTENCY_KEY.fullmatch(value):
                raise InvalidInput("Idempotency-Key must have 1 to 190 printable ASCII characters")
    return None if trace is key is None else PublishHeaders(trace, key)


def make_outcome(published: Published) -> PublishOutcome:
    if published.code is None:
        if published.routed:
            return PublishOutcome(
                str(published.id), published.duplicate, routed=list(published.routed)
            )
        return PublishOutcome(str(published.id), published.duplicate)
    return PublishOutcome(error=Problem(published.code, published.error or published.code))


def announce_one(
    call: RequestContext, drafts: Sequence[Draft], published: Sequence[Published]
) -> None:
    """Updates metrics and announces new messages to event listeners."""
    metrics = call.service.metrics
    both = zip(drafts, published, strict=True)
    new = [pair for pair in both if pair[1].code is None and not pair[1].duplicate]
    for queue, count in count_values([draft.queue for draft, _ in new]):
        metrics.published.add(metrics.queue(queue), by=count)
    if len(new) < len(published):
        for code, count in count_values([each.code for each in published if each.code]):
            metrics.refused.add(code, by=count)
    announce(call, new)


def announce(call: RequestContext, new: Sequence[tuple[Draft, Published]]) -> None:
    """Announces a few messages at once. Larger batches reach listeners through the event tail."""
    hub = call.service.hub
    if hub.listeners and len(new) <= MAX_ANNOUNCED_EACH:
        for draft, each in new:
            hub.announce(make_published_event(call, draft, each), each.id)
    call.service.wake_tail()


def make_published_event(call: RequestContext, draft: Draft, published: Published) -> EncodedEvent:
    event = Event(
        PUBLISHED,
        datetime.now(UTC),
        call.scope,
        draft.queue,
        str(published.id),
        draft.type,
        correlation_id=draft.correlation_id,
    )
    return EncodedEvent(event, call.caller.tenant)
