"""One request, past the door: who calls, where, and how to see that the caller has left."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from penstock.broker import Broker
from penstock.errors import BodyTooLarge, InvalidInput, Malformed
from penstock.http.caller import Caller
from penstock.http.service import Limits, Service

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

KEY = "penstock"


class Gone(Exception):
    """The caller has left; nobody is there to be answered."""


class Call:
    """`scope` is the namespace of queues the caller means."""

    __slots__ = ("broker", "caller", "receive", "request_id", "scope", "service")

    def __init__(
        self, service: Service, caller: Caller, scope: str, request_id: str, receive: Receive
    ) -> None:
        self.service = service
        self.caller = caller
        self.scope = scope
        self.request_id = request_id
        self.receive = receive
        self.broker: Broker = service.broker(caller.tenant)

    async def body(self) -> bytes:
        return await read_body(self.receive, self.service.limits)

    async def lines(self) -> AsyncIterator[bytes]:
        """Of a body of any length, as they come."""
        rest, more = b"", True
        while more:
            piece, more = await next_piece(self.receive)
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > self.service.limits.body:
                raise BodyTooLarge(f"a line has more than {self.service.limits.body} bytes")
        yield rest


async def read_body(receive: Receive, limits: Limits) -> bytes:
    """Whole. One that comes in pieces without end is refused when it is too much, or too slow."""
    body, more = await next_piece(receive)
    if more:
        try:
            async with asyncio.timeout(limits.patience):
                body = await read_rest(receive, body, limits.body)
        except TimeoutError:
            raise Malformed(f"the body did not come within {limits.patience:g} s") from None
    if len(body) > limits.body:
        raise BodyTooLarge(f"the request has more than {limits.body} bytes")
    return body


async def read_rest(receive: Receive, first: bytes, most: int) -> bytes:
    """No more than it takes to see that it is too much."""
    pieces, size, more = [first], len(first), True
    while more and size <= most:
        piece, more = await next_piece(receive)
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def next_piece(receive: Receive) -> tuple[bytes, bool]:
    """And whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message.get("body", b""), message.get("more_body", False)


def scope_of(query: bytes) -> str:
    """The namespace that `?scope=` names."""
    if not query:
        return "default"
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if unknown := {name for name, _ in given} - {"scope"}:
        raise InvalidInput(f"no parameter named {', '.join(sorted(unknown))[:200]}; there is scope")
    return given[-1][1] if given else "default"
