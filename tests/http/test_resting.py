"""Connections that nobody uses are closed, and no others. In virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from penstock.http.protocol import Protocol

REST = 75
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

    def call_later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(asyncio.TimerHandle(self.now + delay, call, (), self.loop))
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

    def write(self, data: Any) -> None:
        """Nobody reads it."""

    def close(self) -> None:
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
        config = Config(self.app, interface="asgi3", log_config=None, timeout_keep_alive=REST)
        config.load()
        self.protocol = Protocol(
            config, ServerState(), {}, cast(asyncio.AbstractEventLoop, self.time)
        )
        self.protocol.connection_made(self.wire)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.may_answer.wait()
        await send(ANSWER)
        await send({"type": "http.response.body"})

    def send(self, data: bytes = REQUEST) -> None:
        self.protocol.data_received(data)
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


def test_who_has_begun_to_ask_does_not_rest(connection: Connection) -> None:
    connection.send()
    connection.send(REQUEST[:10])
    connection.time.until(2 * REST)
    assert not connection.wire.closed


def test_who_has_left_is_forgotten(connection: Connection) -> None:
    connection.send()
    connection.protocol.connection_lost(ConnectionResetError())
    assert connection.time.waiting == 0
