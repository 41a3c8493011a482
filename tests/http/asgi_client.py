"""A client that speaks ASGI to an app in its own process, as a server does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.http.context import Message, Receive, Scope, Send
from tests.http.served import Reply

TIMEOUT_S = 60.0


class Call:
    """A request under way. `disconnect` is the client that leaves."""

    def __init__(self, app: Any, method: str, path: str, body: Any, headers: Any) -> None:
        path, _, query = path.partition("?")
        self.scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"host", b"localhost"), *headers],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
        }
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        sent = b"" if body is None else json.dumps(body).encode()
        half = len(sent) // 2
        self.inbox.put_nowait({"type": "http.request", "body": sent[:half], "more_body": True})
        self.inbox.put_nowait({"type": "http.request", "body": sent[half:]})
        self.outbox: asyncio.Queue[Message] = asyncio.Queue()
        self.task = asyncio.ensure_future(app(self.scope, self.inbox.get, self.outbox.put))

    def disconnect(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    async def next(self) -> Message:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.outbox.get()

    async def reply(self) -> Reply:
        async with asyncio.timeout(TIMEOUT_S):
            await self.task
        start = self.outbox.get_nowait()
        pieces = [self.outbox.get_nowait() for _ in range(self.outbox.qsize())]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], headers, b"".join(each.get("body", b"") for each in pieces))


class AsgiClient:
    def __init__(self, app: Any, prefix: str = "") -> None:
        self.app = app
        self.prefix = prefix

    def call(self, method: str, path: str, body: Any = None, *headers: tuple[bytes, bytes]) -> Call:
        return Call(self.app, method, self.prefix + path, body, headers)

    async def get(self, path: str) -> Reply:
        return await self.call("GET", path).reply()

    async def post(self, path: str, body: Any = None) -> Reply:
        return await self.call("POST", path, body).reply()

    def claim(self, queue: str, wait: float = 30) -> Call:
        return self.call("POST", "/v1/claim", {"queues": [{"queue": queue}], "wait": wait})


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Runs the app's lifespan, as a server does."""
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    outbox: asyncio.Queue[Message] = asyncio.Queue()
    receive: Receive = inbox.get
    send: Send = outbox.put
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, receive, send))
    for phase in ("startup", "shutdown"):
        inbox.put_nowait({"type": f"lifespan.{phase}"})
        async with asyncio.timeout(TIMEOUT_S):
            told = await outbox.get()
        if told["type"] != f"lifespan.{phase}.complete":
            await task
            raise AssertionError(told)
        if phase == "startup":
            yield
    await task
