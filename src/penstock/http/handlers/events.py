"""The route for live events."""

from typing import Annotated

from fastapi import Header, Query

from penstock.errors import InvalidInput, InvalidToken
from penstock.http.events.hub import KINDS, Filter
from penstock.http.events.sse import EventStream
from penstock.http.events.tail import ResumePoint, parse_resume_point
from penstock.http.routing import Alone, RouteTable

events = RouteTable("events")
Names = Annotated[list[str], Query(max_length=100)]


@events.add("GET", "/v1/events", "Stream events (SSE)", "text/event-stream")
async def listen(
    call: Alone,
    scope: Names = [],  # noqa: B006 - FastAPI copies it
    queue: Names = [],  # noqa: B006
    kind: Names = [],  # noqa: B006
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> EventStream:
    """Streams the events of the given scopes, queues and kinds, or all. Events carry no message
    bodies. With Last-Event-ID, missed events are sent first, at least once."""
    if unknown := set(kind) - set(KINDS):
        raise InvalidInput(f"unknown kind {', '.join(sorted(unknown))}; use {', '.join(KINDS)}")
    missed = None if last_event_id is None else parse_last_event_id(last_event_id)
    names = (frozenset(scope), frozenset(queue), frozenset(kind))
    wanted = Filter(call.caller.tenant, *names, allows=call.allows)
    await call.service.follower.start()
    call.service.event_streams.take(call.caller)
    return EventStream(call, call.service.hub.listen(wanted), missed)


def parse_last_event_id(text: str) -> ResumePoint:
    mark = parse_resume_point(text)
    if mark is None:
        raise InvalidToken("Last-Event-ID is not an event id of this server")
    return mark
