"""Live events."""

from typing import Annotated

from fastapi import Header, Query

from penstock.errors import InvalidInput, InvalidToken
from penstock.http.events.hub import KINDS, Filter
from penstock.http.events.sse import EventStream
from penstock.http.events.tail import ResumePoint, parse_resume_point
from penstock.http.routing import Alone, RouteTable

events = RouteTable("events")
Names = Annotated[list[str], Query(max_length=100)]


@events.add("GET", "/v1/events", "What happens, as server-sent events", "text/event-stream")
async def listen(
    call: Alone,
    scope: Names = [],  # noqa: B006 - FastAPI copies it
    queue: Names = [],  # noqa: B006
    kind: Names = [],  # noqa: B006
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> EventStream:
    """Of these scopes, queues and kinds, or of all. Without bodies. With Last-Event-ID, what came
    since is sent first: some of it again, none of it left out."""
    if unknown := set(kind) - set(KINDS):
        raise InvalidInput(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    missed = None if last_event_id is None else parse_last_event_id(last_event_id)
    names = (frozenset(scope), frozenset(queue), frozenset(kind))
    wanted = Filter(call.caller.tenant, *names, allows=call.allows)
    listener = call.service.hub.listen(wanted)
    try:
        reader = await call.service.follower.start()
    except BaseException:
        call.service.hub.leave(listener)
        raise
    return EventStream(call, listener, reader.mark, missed)


def parse_last_event_id(text: str) -> ResumePoint:
    mark = parse_resume_point(text)
    if mark is None:
        raise InvalidToken("Last-Event-ID is not the id of one of our events")
    return mark
