"""Extends uvicorn's protocol with timeouts, head limits and single-write responses."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import Malformed, PenstockError, RequestTimeout
from penstock.http.connection_timeouts import ReadTimer, WriteTimer
from penstock.http.context import CLOSE, RESPONDER_EXTENSION, Headers
from penstock.http.lingering_close import (
    LingeringClose,
    LingeringTransport,
    encode_response,
    error_response,
)
from penstock.http.state import ServerLimits

# Bounds a request head, and chunk extensions and other framing bytes of a body.
MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 200
MAX_PIPELINED = 32
KEEP_ALIVE_S = 75
# How long a stopping server waits for the next byte of a request.
STOP_STALL_TIMEOUT_S = 3.0
TOO_LONG = "request head is too large"
NOT_HTTP = "invalid HTTP request"
TRAILERS = "trailers are not supported"
ONE_HOST = "exactly one Host header is required"


class UvicornConfig(uvicorn.Config):
    """Carries our connection limits to the protocol."""

    def __init__(self, app: Any, limits: ServerLimits, grace: float = 30.0) -> None:
        super().__init__(
            app,
            http="httptools",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(grace),
        )
        self.limits = limits


class HttpProtocol(HttpToolsProtocol):
    whole: "ConnectionResponder | None" = None
    # Bytes since the last progress: a complete head, a body chunk, the end of a request.
    unframed = 0
    in_head = False
    received = 0
    # Why a callback stopped the parser.
    problem = NOT_HTTP
    # The connection closes after the pending response; further input is dropped.
    ignoring = False
    half_closed = False
    closing = False

    @property
    def running(self) -> RequestResponseCycle | None:
        """The request being processed."""
        if self.whole is None or self.whole.cycle.response_complete:
            return None
        return self.whole.cycle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        limits, loop = cast(UvicornConfig, self.config).limits, self.loop
        self.answers = LingeringTransport(self.transport, self.close_after_answer)
        # uvicorn declares that it returns nothing, which closes the connection.
        vars(self)["eof_received"] = self.keep_open_after_eof
        self.unread = WriteTimer(loop, self.transport, limits.body_timeout)
        self.timer = ReadTimer(loop, limits.head_timeout, self.timeout_keep_alive, self.expire)
        self.timer.await_head()

    def data_received(self, data: bytes) -> None:
        if len(data) > MAX_HEAD_BYTES:
            for start in range(0, len(data), MAX_HEAD_BYTES):
                self.data_received(data[start : start + MAX_HEAD_BYTES])
            return
        if self.ignoring or self.closing:
            return
        self.received += len(data)
        self.unframed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            return self.refuse(Malformed(self.problem))
        if self.unframed >= MAX_HEAD_BYTES:
            self.refuse(Malformed(TOO_LONG))
        elif self.in_head and self.timer.head_since is None:
            self.timer.await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head = True
        self.timer.idle_since = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            self.stop_parsing(TRAILERS)
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > MAX_HEADERS:
            self.stop_parsing(TOO_LONG)

    def on_headers_complete(self) -> None:
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self.stop_parsing(ONE_HOST)
        self.in_head, self.timer.head_since, self.unframed = False, None, 0
        super().on_headers_complete()
        if self.pipeline and len(self.pipeline) < MAX_PIPELINED:
            # A disconnect goes unnoticed while reading is paused.
            self.flow.resume_reading()

    def stop_parsing(self, problem: str) -> None:
        self.problem = problem
        raise ValueError(problem)

    def on_body(self, body: bytes) -> None:
        self.unframed = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        self.unframed = 0
        super().on_message_complete()

    def keep_open_after_eof(self) -> bool:
        """Still answers a complete request after a half-close. A waiting claim gets no messages,
        because the client may be gone."""
        running = self.running
        if running is None or running.more_body or running.response_started:
            return False
        self.half_closed = True
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()
        if self.whole is not None:
            self.whole.leave()
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.whole = ConnectionResponder(cycle, self.half_closed)
        cycle.transport = self.answers
        cycle.scope["extensions"] = {RESPONDER_EXTENSION: {"responder": self.whole}}
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.closing or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.half_closed:
            self.close()
        elif not self.in_head:
            self.timer.await_request()

    def refuse(self, error: PenstockError) -> None:
        """Responds with the error and closes. An earlier request that is complete, or whose
        response has begun, is answered instead before the connection closes."""
        running = self.running
        if running is not None and (running.response_started or not running.more_body):
            running.keep_alive = False
            self.ignoring, self.in_head, self.timer.head_since = True, False, None
            return self.pipeline.clear()
        if running is not None:
            self.disconnect(running)
        self.keep_open(error_response(error, self.server_state.default_headers))

    def disconnect(self, cycle: RequestResponseCycle) -> None:
        """Signals the disconnect to the application."""
        cycle.disconnected = True
        cycle.message_event.set()
        if self.whole is not None:
            self.whole.leave()

    def close_after_answer(self) -> None:
        unread = self.cycle.more_body or self.pipeline or self.ignoring
        if unread and not self.half_closed:
            self.keep_open()
        else:
            self.close()

    def close(self) -> None:
        """Closes when everything is sent or the client stops reading."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.unread.start()

    def keep_open(self, answer: bytes = b"") -> None:
        if self.closing or self.transport.is_closing():
            return
        self.closing = self.answers.lingers = True
        self.connections.discard(self)
        self.timer.cancel()
        self.unread.cancel()
        self.flow.resume_reading()
        last = LingeringClose(self.loop, answer)
        self.transport.set_protocol(last)
        last.connection_made(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        self.unread.cancel()
        running = self.running
        super().connection_lost(exc)
        if running is not None:
            self.disconnect(running)

    def _unset_keepalive_if_required(self) -> None:
        """Does nothing, because ReadTimer handles keep-alive."""

    def expire(self) -> None:
        if self.in_head:
            seconds = self.timer.head_timeout
            self.refuse(RequestTimeout(f"request head not received within {seconds:g} s"))
        else:
            self.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.cancel()

    def shutdown(self) -> None:
        super().shutdown()
        self.check_stalled(None)

    def check_stalled(self, received: int | None) -> None:
        """Refuses an incomplete request that stalls while the server stops."""
        running = self.running
        if running is None or not running.more_body or self.closing:
            return
        if received == self.received:
            return self.refuse(
                RequestTimeout("server is shutting down and the request is incomplete")
            )
        self.loop.call_later(STOP_STALL_TIMEOUT_S, self.check_stalled, self.received)


class ConnectionResponder:
    """Reads a body and writes a response in one call each, where uvicorn needs several."""

    __slots__ = ("cycle", "gone", "left")

    def __init__(self, cycle: RequestResponseCycle, left: bool = False) -> None:
        self.cycle = cycle
        self.left = left
        self.gone: Callable[[], None] | None = None

    @property
    def has_unread_body(self) -> bool:
        return self.cycle.more_body

    def body(self) -> bytes | None:
        cycle = self.cycle
        if cycle.more_body or cycle.disconnected:
            return None
        cycle.flow.resume_reading()
        return bytes(cycle.body)

    def watch(self, on_disconnect: Callable[[], None]) -> None:
        self.gone = on_disconnect
        if self.left:
            on_disconnect()

    def stop_watching(self) -> bool:
        """True if the client has disconnected."""
        self.gone = None
        return self.left

    def leave(self) -> None:
        self.left = True
        if self.gone is not None:
            self.gone()

    async def __call__(self, status: int, headers: Headers, body: bytes) -> None:
        cycle = self.cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(self.encode_response(status, headers, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def encode_response(self, status: int, headers: Headers, body: bytes) -> bytes:
        cycle = self.cycle
        if CLOSE in headers:
            cycle.keep_alive = False
        elif cycle.more_body or not cycle.keep_alive:
            cycle.keep_alive = False
            headers.append(CLOSE)
        sent = b"" if cycle.scope["method"] == "HEAD" else body
        return encode_response(status, [*cycle.default_headers, *headers], sent)
