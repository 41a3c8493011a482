"""The stream of changes: names what an open page should fetch again, at most twice per second."""

import asyncio

import msgspec
from msgspec import Struct
from starlette.responses import Response

from penstock.http.context import Receive, RequestContext, Scope, Send, wait_for_disconnect
from penstock.http.dashboard.live_figures import LiveFigures
from penstock.http.events.frames import KEEPALIVE, SERVER_STOPS, make_frame
from penstock.http.events.sse import RETRY_DELAY_MS, watch_rights

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.5, 2.0
# Each change makes every page fetch, so that many pages hear of changes less often.
MAX_CHANGES_PER_S = 10.0
KEEPALIVE_INTERVAL_S = 15.0
# A page that sees more changed queues than this fetches everything again.
MAX_NAMED_QUEUES = 100
MESSAGES_TOPIC = "messages"
encode = msgspec.json.Encoder().encode


class Changes(Struct, frozen=True, omit_defaults=True):
    """Topics that changed. `queues` names those with changed messages; without it, all may have."""

    topics: list[str]
    queues: list[str] | None = None


def choose_interval(streams: int) -> float:
    """Returns how many seconds a page waits between changes beside so many open streams."""
    return min(max(MIN_INTERVAL_S, streams / MAX_CHANGES_PER_S), MAX_INTERVAL_S)


def find_changes(call: RequestContext, figures: LiveFigures, after: int) -> Changes | None:
    """Returns what changed after this number in queues that the caller may read."""
    topics = [topic for topic, number in figures.topics.items() if number > after]
    touched = [id for id, number in figures.changed.items() if number > after]
    visible = [
        queue.name
        for id in touched
        if (queue := figures.directory.by_id.get(id)) is not None
        and queue.scope.tenant == call.caller.tenant
        and call.allows(queue.scope.name, queue.name)
    ]
    if visible:
        topics.append(MESSAGES_TOPIC)
    few = sorted(set(visible)) if 0 < len(visible) <= MAX_NAMED_QUEUES else None
    return Changes(sorted(topics), few) if topics else None


class ChangeStream(Response):
    """Sent for as long as the client is there and may read."""

    def __init__(self, call: RequestContext) -> None:
        super().__init__(
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
            media_type="text/event-stream",
        )
        del self.headers["content-length"]
        self.call = call
        self.caller = call.caller
        self.figures = call.service.figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = {
            asyncio.ensure_future(self.send_all(send)),
            asyncio.ensure_future(wait_for_disconnect(receive)),
        }
        if self.call.service.authenticator.asks:
            tasks.add(asyncio.ensure_future(watch_rights(self.call)))
        self.figures.streams += 1
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.figures.streams -= 1
            self.call.service.event_streams.release(self.caller)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self.send_frame(send, make_frame("opened", "{}", None, RETRY_DELAY_MS))
        seen = self.figures.number
        while not self.figures.closed:
            changed = await self.wait_for_news(seen)
            changes = find_changes(self.call, self.figures, seen) if changed else None
            seen = self.figures.number
            if changes is not None:
                data = encode(changes).decode()
                await self.send_frame(send, make_frame("changes", data, None))
                await asyncio.sleep(choose_interval(self.figures.streams))
            elif not changed:
                await self.send_frame(send, KEEPALIVE)
        await self.send_frame(send, SERVER_STOPS)
        await send({"type": "http.response.body", "body": b""})

    async def wait_for_news(self, seen: int) -> bool:
        """Returns False if nothing happened until a keepalive is due."""
        if self.figures.number > seen:
            return True
        try:
            async with asyncio.timeout(KEEPALIVE_INTERVAL_S):
                await self.figures.news.wait()
        except TimeoutError:
            return False
        return True

    async def send_frame(self, send: Send, frame: bytes) -> None:
        await send({"type": "http.response.body", "body": frame, "more_body": True})
