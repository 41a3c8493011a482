"""Closes a connection so that the client can read the last response.

Closing a socket with unread bytes sends a reset, which destroys a response that the client has not
read yet.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from penstock.errors import PenstockError
from penstock.http.context import CLOSE, Headers
from penstock.http.errors import RETRY_AFTER, encode_error, find_status
from penstock.runner import make_identity

MAX_DISCARDED_BYTES = 16 * 1_048_576
LINGER_TIMEOUT_S = 5.0


class LingeringClose(asyncio.Protocol):
    """Sends the last response, then discards input until the client closes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: bytes = b"") -> None:
        self.loop = loop
        self.answer = answer
        self.discarded = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.answer:
            self.transport.write(self.answer)
        self.transport.write_eof()
        self.timer = self.loop.call_later(LINGER_TIMEOUT_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self.discarded += len(data)
        if self.discarded > MAX_DISCARDED_BYTES:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()


class LingeringTransport(asyncio.Transport):
    """The transport uvicorn writes to. `close` lets the client read the response first."""

    lingers = False

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.transport = transport
        self.close_after_answer = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.transport.write(data)

    def is_closing(self) -> bool:
        return self.lingers or self.transport.is_closing()

    def close(self) -> None:
        self.close_after_answer()


def error_response(error: PenstockError, default_headers: Headers) -> bytes:
    """Builds the error response to input that is not a valid request."""
    status, request_id = find_status(error), make_identity()
    body = encode_error(error, request_id)
    headers = [
        *default_headers,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        CLOSE,
    ]
    if status in RETRY_AFTER:
        headers.append((b"retry-after", RETRY_AFTER[status]))
    return encode_response(status, headers, body)


def encode_response(status: int, headers: Headers, body: bytes) -> bytes:
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    lines += (b"\r\n", body)
    return b"".join(lines)
