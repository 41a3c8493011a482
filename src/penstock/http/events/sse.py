"""Server-sent events: missed events, live events, and keepalives."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import structlog
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from penstock.errors import IdentityUnavailable, PenstockError, StoreError
from penstock.http.context import Receive, RequestContext, Scope, Send, wait_for_disconnect
from penstock.http.events.frames import SERVER_STOPS, make_frame
from penstock.http.events.hub import OPENED, Event, EventListener, encode
from penstock.http.events.tail import HistoryReader, ResumePoint
from penstock.http.state import ServerState

log: FilteringBoundLogger = structlog.get_logger()
# Milliseconds until a client reconnects.
RETRY_DELAY_MS = 1_000
# The rights of the caller are checked at this interval.
RIGHTS_INTERVAL_S = 1.0


async def stream_events(
    service: ServerState, listener: EventListener, missed: ResumePoint | None
) -> AsyncIterator[bytes]:
    """Yields missed events, then live ones. The listener is registered, so none is skipped."""
    yield make_opening(listener.cursor if missed is None else str(missed))
    if missed is not None:
        async for frames in catch_up(service, listener, missed):
            yield frames
    while not listener.closed:
        yield await listener.read()
    yield SERVER_STOPS


def make_opening(cursor: str | None) -> bytes:
    """Returns the first frame. Some clients ignore the id of a frame without data."""
    data = encode(Event(OPENED, datetime.now(UTC), "", "")).decode()
    return make_frame(OPENED, data, cursor, RETRY_DELAY_MS)


async def catch_up(
    service: ServerState, listener: EventListener, missed: ResumePoint
) -> AsyncIterator[bytes]:
    reader = HistoryReader(service.store, service.directory, service.hub, missed)
    while not listener.closed:
        async with service.history_tail.turns:
            events = await reader.read()
        if not events:
            return
        yield b"".join(each.frame for each in events if listener.filter.matches(each))


async def watch_rights(call: RequestContext) -> None:
    """Updates the rights of the caller, and returns when it is no longer authorized."""
    while call.right is None or call.right in call.caller.access.rights:
        await asyncio.sleep(RIGHTS_INTERVAL_S)
        try:
            call.caller = await call.service.authenticator.recognise(call.asgi_scope)
        except (StoreError, IdentityUnavailable):
            # The rights cannot be checked now.
            continue
        except PenstockError as error:
            log.info("stream_ended", error=str(error))
            return


class EventStream(Response):
    """Sends events until the client disconnects. A client that does not read is cut off."""

    def __init__(
        self, call: RequestContext, listener: EventListener, missed: ResumePoint | None
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"},
                         media_type="text/event-stream")  # fmt: skip
        del self.headers["content-length"]
        self.call = call
        self.service = call.service
        # `call.caller` is replaced when its rights change.
        self.caller = call.caller
        self.listener = listener
        self.missed = missed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self.send_all(send))
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
        tasks: set[asyncio.Future[None]] = {sending, leaving, self.listener.lost}
        if self.service.authenticator.asks:
            tasks.add(asyncio.ensure_future(watch_rights(self.call)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.service.hub.leave(self.listener)
            self.service.event_streams.release(self.caller)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled():
            sending.result()

    async def send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async for frames in stream_events(self.service, self.listener, self.missed):
                await send({"type": "http.response.body", "body": frames, "more_body": True})
        except StoreError as error:
            # The response has begun. The client reconnects and resumes after its last event.
            log.warning("stream_ended", error=str(error))
        await send({"type": "http.response.body", "body": b""})
