"""What uvicorn leaves open: heads without an end are cut off, and a quick answer is one write."""

from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from penstock.http.call import CLOSE, WHOLE, Headers

MOST_BYTES = 65_536
MOST_HEADERS = 200
TOO_LONG = "The head of the request is too long."


class Protocol(HttpToolsProtocol):
    whole: "Whole | None" = None
    # Bytes of the head that is being read.
    head = 0
    in_head = True
    # When the last answer was given, while nothing was sent since.
    resting_since: float | None = None

    def data_received(self, data: bytes) -> None:
        self.resting_since = None
        self.head += len(data)
        super().data_received(data)
        if self.in_head and self.head > MOST_BYTES and not self.transport.is_closing():
            self.send_400_response(TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ValueError(TOO_LONG)

    def on_headers_complete(self) -> None:
        self.in_head = False
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.whole = Whole(self.cycle)
            self.scope["extensions"] = {WHOLE: {"answer": self.whole}}

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)
        if self.whole is not None and self.whole.gone is not None:
            self.whole.gone()

    def on_message_complete(self) -> None:
        self.in_head, self.head = True, 0
        super().on_message_complete()

    # One timer for many requests: to set and cancel one for each is a twentieth of its work.

    def _unset_keepalive_if_required(self) -> None:
        """It looks for itself whether it is still due."""

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.resting_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.close_after(self.timeout_keep_alive)

    def close_after(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.resting_since is None:
            return
        left = self.resting_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.close_after(left)
        else:
            super().timeout_keep_alive_handler()


class Whole:
    """Head and body at once, both ways: uvicorn hands a body over in pieces, and writes head and
    body one by one, so that a caller is woken for each."""

    __slots__ = ("cycle", "gone")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self.cycle = cycle
        # Whom to tell that the caller has left.
        self.gone: Callable[[], None] | None = None

    def body(self) -> bytes | None:
        """What was sent, if all of it is here, as most often it is."""
        cycle = self.cycle
        if cycle.more_body or cycle.disconnected:
            return None
        cycle.flow.resume_reading()
        return bytes(cycle.body)

    def watch(self, notice: Callable[[], None]) -> None:
        self.gone = notice
        if self.cycle.disconnected:
            notice()

    def unwatch(self) -> bool:
        """True if the caller has left."""
        self.gone = None
        return self.cycle.disconnected

    async def __call__(self, status: int, headers: Headers, body: bytes) -> None:
        cycle = self.cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(self.written(status, headers, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def written(self, status: int, headers: Headers, body: bytes) -> bytes:
        lines = [STATUS_LINE[status]]
        if CLOSE in headers:
            self.cycle.keep_alive = False
        elif not self.cycle.keep_alive:
            headers.append(CLOSE)
        for name, value in (*self.cycle.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n", body)
        return b"".join(lines)
