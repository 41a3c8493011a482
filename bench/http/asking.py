"""HTTP clients that each send the next request when the last response arrives."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import TypeAlias, cast

from msgspec import Struct

from bench.http.serving import Served

CONNECTIONS = 64
# Maps a response to the next request; None closes the connection.
Next: TypeAlias = Callable[[bytes], bytes | None]


def make_request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def repeat_request(path: str, body: bytes) -> Next:
    sent = make_request(path, body)
    return lambda _: sent


def make_limited_requests(count: int, path: str, body: bytes) -> Next:
    """Sends `count` requests in total over all connections."""
    sent, left = make_request(path, body), itertools.repeat(None, count)
    return lambda _: sent if next(left, b"") is None else None


class Asker(asyncio.Protocol):
    def __init__(self, crowd: "Crowd") -> None:
        self.crowd = crowd
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.ask(b"")

    def ask(self, answer: bytes) -> None:
        following = self.crowd.next(answer)
        if following is None:
            self.crowd.leave()
            return
        self.asked_at = time.perf_counter()
        self.transport.write(following)

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, end, body = self.seen.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        if len(body) < size:
            return
        self.seen = b""
        assert head.startswith(b"HTTP/1.1 20"), head
        if not self.crowd.over:
            self.crowd.took.append(time.perf_counter() - self.asked_at)
            self.ask(body)


class Crowd:
    def __init__(self, next: Next, connections: int = CONNECTIONS) -> None:
        self.next = next
        self.size = self.left = connections
        self.over = False
        self.took: list[float] = []
        self.all_left = asyncio.get_running_loop().create_future()
        self.made: list[asyncio.BaseTransport] = []

    async def come(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.size):
            made, _ = await loop.create_connection(lambda: Asker(self), "127.0.0.1", port)
            self.made.append(made)

    def leave(self) -> None:
        self.left -= 1
        if not self.left:
            self.all_left.set_result(None)

    def end(self) -> None:
        self.over = True
        for transport in self.made:
            transport.close()


class Run(Struct, frozen=True):
    rate: float
    # Server CPU in microseconds per request.
    cpu: float
    p99: float


async def measure_rate(server: Served, next: Next, seconds: float) -> Run:
    """Measures requests per second after a warm-up."""
    crowd = Crowd(next)
    await crowd.come(server.port)
    await asyncio.sleep(0.3)
    crowd.took.clear()
    began, used = time.perf_counter(), server.cpu
    await asyncio.sleep(seconds)
    took, used, count = time.perf_counter() - began, server.cpu - used, len(crowd.took)
    crowd.end()
    return Run(count / took, used / count * 1e6, compute_quantile(crowd.took, 0.99) * 1e3)


async def time_requests(server: Served, next: Next, connections: int) -> float:
    """Returns the seconds until all requests are answered."""
    crowd = Crowd(next, connections)
    began = time.perf_counter()
    await crowd.come(server.port)
    await crowd.all_left
    crowd.end()
    return time.perf_counter() - began


def compute_quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
