"""Connections are closed when their clients are silent for too long. In virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from penstock.http.lingering_close import LINGER_TIMEOUT_S, MAX_DISCARDED_BYTES
from penstock.http.state import ServerLimits
from penstock.http.uvicorn_protocol import STOP_STALL_TIMEOUT_S, HttpProtocol, UvicornConfig

REST, HEAD, BODY = 75, 15, 30
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = {"type": "http.response.start", "status": 204, "headers": []}


class Time:
    """A loop's: it goes on when told to."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_later(
        self, delay: float, call: Callable[..., None], *args: object
    ) -> asyncio.TimerHandle:
        self.timers.append(asyncio.TimerHandle(self.now + delay, call, args, self.loop))
        return self.timers[-1]

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self.loop.create_task(work)

    def settle(self) -> None:
        """Whatever can be done now."""
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0))

    def until(self, when: float) -> None:
        self.now = when
        due = [timer for timer in self.timers if timer.when() <= when]
        self.timers = [timer for timer in self.timers if timer.when() > when]
        for timer in due:
            if not timer.cancelled():
                timer._run()
        self.settle()

    @property
    def waiting(self) -> int:
        return sum(not timer.cancelled() for timer in self.timers)


class Wire(asyncio.Transport):
    closed = False
    # What a client that reads nothing leaves behind.
    unsent = 0

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        """The client sees it."""

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


class Connection:
    def __init__(self) -> None:
        self.time = Time()
        self.wire = Wire()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        config = UvicornConfig(self.app, ServerLimits(head_timeout=HEAD, body_timeout=BODY))
        self.protocol = HttpProtocol(
            config, ServerState(), {}, cast(asyncio.AbstractEventLoop, self.time)
        )
        self.protocol.connection_made(self.wire)
        self.wire.protocol = self.protocol

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.may_answer.wait()
        await send(ANSWER)
        await send({"type": "http.response.body"})

    def send(self, data: bytes = REQUEST) -> None:
        cast(asyncio.Protocol, self.wire.protocol).data_received(data)
        self.time.settle()


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = Connection()
    yield connection
    connection.time.loop.close()


def test_it_is_closed_when_it_rested_long_enough(connection: Connection) -> None:
    connection.send()
    connection.time.until(REST - 1)
    assert not connection.wire.closed
    connection.time.until(REST)
    assert connection.wire.closed


def test_it_rests_since_its_last_answer(connection: Connection) -> None:
    connection.send()
    connection.time.until(50)
    connection.send()
    connection.time.until(REST)
    connection.time.until(50 + REST - 1)
    assert not connection.wire.closed
    connection.time.until(50 + REST)
    assert connection.wire.closed


def test_many_requests_need_one_timer(connection: Connection) -> None:
    for _ in range(10):
        connection.send()
    assert connection.time.waiting == 1


def test_who_waits_for_an_answer_does_not_rest(connection: Connection) -> None:
    connection.send()
    connection.may_answer.clear()
    connection.send()
    connection.time.until(3 * REST)
    assert not connection.wire.closed
    connection.may_answer.set()
    connection.time.settle()
    connection.time.until(4 * REST - 1)
    assert not connection.wire.closed
    connection.time.until(4 * REST)
    assert connection.wire.closed


def test_a_client_that_sends_nothing_is_cut_off(connection: Connection) -> None:
    connection.time.until(HEAD - 1)
    assert not connection.wire.closed
    connection.time.until(HEAD)
    assert (connection.wire.closed, connection.wire.written) == (True, b"")


def test_a_first_request_in_time_is_served(connection: Connection) -> None:
    connection.time.until(HEAD - 1)
    connection.send()
    connection.time.until(HEAD)
    assert connection.wire.written.startswith(b"HTTP/1.1 204 ")
    assert not connection.wire.closed


def test_half_a_head_is_refused_however_slowly_it_goes_on(connection: Connection) -> None:
    for second in range(HEAD):
        connection.time.until(second)
        connection.send(REQUEST[second : second + 1])
    connection.time.until(HEAD)
    assert connection.wire.written.startswith(b"HTTP/1.1 408 ")


def test_half_of_a_second_head_has_as_long_as_a_first_one(connection: Connection) -> None:
    connection.send()
    connection.time.until(50)
    connection.wire.written = b""
    connection.send(REQUEST[:10])
    connection.time.until(50 + HEAD - 1)
    assert connection.wire.written == b""
    connection.time.until(50 + HEAD)
    assert connection.wire.written.startswith(b"HTTP/1.1 408 ")


def test_blank_lines_are_not_the_beginning_of_a_request(connection: Connection) -> None:
    connection.send()
    connection.time.until(REST - 1)
    connection.send(b"\r\n")
    connection.time.until(REST)
    assert connection.wire.closed


def test_a_running_request_is_answered_before_the_half_head_behind_it(
    connection: Connection,
) -> None:
    connection.may_answer.clear()
    connection.send(REQUEST + REQUEST[:10])
    connection.time.until(HEAD)
    assert connection.wire.written == b""
    connection.may_answer.set()
    connection.time.settle()
    assert connection.wire.written.startswith(b"HTTP/1.1 204 ")
    assert b"connection: close" in connection.wire.written


def test_a_refused_client_is_not_waited_for_for_ever(connection: Connection) -> None:
    connection.send(b"GARBAGE\r\n\r\n")
    assert connection.wire.written.startswith(b"HTTP/1.1 400 ")
    assert not connection.wire.closed
    connection.time.until(LINGER_TIMEOUT_S)
    assert connection.wire.closed


def test_a_refused_client_is_not_read_without_end(connection: Connection) -> None:
    connection.send(b"GARBAGE\r\n\r\n")
    connection.send(b"x" * MAX_DISCARDED_BYTES)
    assert not connection.wire.closed
    connection.send(b"x")
    assert connection.wire.closed


def test_a_client_that_reads_nothing_is_cut_off(connection: Connection) -> None:
    connection.send()
    connection.wire.unsent = 100_000
    connection.protocol.pause_writing()
    connection.time.until(BODY - 1)
    assert not connection.wire.closed
    connection.time.until(BODY)
    assert connection.wire.closed


def test_a_client_that_reads_slowly_is_not_cut_off(connection: Connection) -> None:
    connection.send()
    connection.wire.unsent = 100_000
    connection.protocol.pause_writing()
    connection.wire.unsent -= 1
    connection.time.until(BODY)
    assert not connection.wire.closed
    connection.protocol.resume_writing()
    connection.time.until(REST - 1)
    assert not connection.wire.closed


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


def test_a_stop_does_not_wait_for_a_body_that_does_not_come(connection: Connection) -> None:
    connection.may_answer.clear()
    connection.send(POST)
    connection.protocol.shutdown()
    connection.time.until(STOP_STALL_TIMEOUT_S)
    assert connection.wire.written.startswith(b"HTTP/1.1 408 ")


def test_a_stop_waits_for_a_body_that_goes_on(connection: Connection) -> None:
    connection.may_answer.clear()
    connection.send(POST)
    connection.protocol.shutdown()
    for number in range(1, 4):
        connection.send(b"xxx")
        connection.time.until(number * STOP_STALL_TIMEOUT_S)
    assert connection.wire.written == b""
    connection.may_answer.set()
    connection.time.settle()
    assert connection.wire.written.startswith(b"HTTP/1.1 204 ")


def test_who_has_left_is_forgotten(connection: Connection) -> None:
    connection.send()
    connection.protocol.connection_lost(ConnectionResetError())
    assert connection.time.waiting == 0
