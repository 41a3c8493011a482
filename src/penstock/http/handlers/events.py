"""The route for live events."""

from typing import Annotated

from msgspec import Meta

from penstock.errors import InvalidInput, InvalidToken
from penstock.http.context import RequestContext
from penstock.http.events.hub import KINDS, Filter
from penstock.http.events.sse import EventStream
from penstock.http.events.tail import ResumePoint, parse_resume_point
from penstock.http.operations import OperationTable
from penstock.model.documents import AuditEntry
from penstock.model.filter import Node
from penstock.model.live_events import Audience
from penstock.model.queue import EVERY, HUMAN
from penstock.rules.access import Right
from penstock.rules.events import parse_event_filter
from penstock.wire.access import TicketView
from penstock.wire.fields import to_datetime

events = OperationTable("events", scoped=False)
Names = Annotated[tuple[str, ...], Meta(max_length=100)]


@events.add(
    "GET",
    "/v1/events",
    "Stream events (SSE)",
    "text/event-stream",
    headers={"Last-Event-ID": "Id of the last event received."},
)
async def stream_events(
    call: RequestContext,
    scope: Names = (),
    queue: Names = (),
    kind: Names = (),
    filter: Annotated[str, Meta(description="A filter, such as type:mail.* -state:completed.")]
    | None = None,
    last_event_id: Annotated[
        str, Meta(max_length=100, description="Replaces the header Last-Event-ID.")
    ]
    | None = None,
    ticket: Annotated[str, Meta(max_length=8_192, description="Replaces the header Authorization.")]
    | None = None,
) -> EventStream:
    """Streams the events of the given scopes, queues and kinds, or all. `filter` selects by fields
    that events carry. Events carry no message bodies. Entries of the audit log are sent if the kind
    `act` is given, to callers with the right `access`. With Last-Event-ID, missed events are sent
    first, at least once. A browser's EventSource cannot send headers: give it a ticket, and the id
    of the last event in `last_event_id`."""
    if unknown := set(kind) - set(KINDS):
        raise InvalidInput(f"unknown kind {', '.join(sorted(unknown))}; use {', '.join(KINDS)}")
    missed = parse_last_event_id(call.get_header(b"last-event-id") or last_event_id)
    names = (frozenset(scope), frozenset(queue), frozenset(kind))
    node = None if filter is None else parse_event_filter(filter, await call.broker.now())

    call.service.event_streams.take(call.caller)
    try:
        listener = await call.service.history_tail.listen(make_filter(call, names, node))
    except BaseException:
        call.service.event_streams.release(call.caller)
        raise
    return EventStream(call, listener, missed)


def make_filter(
    call: RequestContext,
    names: tuple[frozenset[str], frozenset[str], frozenset[str]],
    node: Node | None,
) -> Filter:
    def sees(scope: str, audience: Audience) -> bool:
        return is_addressed(call, scope, audience)

    def sees_act(act: AuditEntry) -> bool:
        return Right.ACCESS in call.caller.access.rights and call.caller.may_see_entry(act)

    return Filter(
        call.caller.tenant, *names, allows=call.allows, node=node, sees=sees, sees_act=sees_act
    )


def is_addressed(call: RequestContext, scope: str, audience: Audience) -> bool:
    """True for the people of a human step, and for readers of a queue of a workflow."""
    caller = call.caller
    if audience.queues:
        return any(call.allows(scope, queue) for queue in audience.queues)
    if not {scope, EVERY} & set(caller.access.scopes):
        return False
    return (
        caller.subject in audience.users
        or not audience.roles.isdisjoint(caller.roles)
        or caller.access.allows(Right.DECIDE, scope, HUMAN)
    )


def parse_last_event_id(text: str | None) -> ResumePoint | None:
    if text is None:
        return None
    mark = parse_resume_point(text)
    if mark is None:
        raise InvalidToken("Last-Event-ID is not an event id of this server")
    return mark


@events.add(
    "POST", "/v1/events/ticket", "Create a ticket for an event stream", TicketView, status=201,
    right=Right.READ,
)  # fmt: skip
async def create_ticket(call: RequestContext) -> TicketView:
    """The ticket opens event streams with the rights of the caller, for a minute. A stream that has
    begun continues while the caller's key or token is valid."""
    ticket, expires_at = await call.service.authenticator.issue_ticket(call.asgi_scope)
    return TicketView(ticket, to_datetime(expires_at))
