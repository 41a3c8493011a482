"""Measures the cost of thousands of long polls and hundreds of event streams."""

import asyncio
import statistics
import time

from bench.figures import Figure
from bench.http.asking import compute_quantile, make_request
from bench.http.bodies import PUBLISH
from bench.http.listening import listening
from bench.http.serving import Served

PARKED, LISTENERS = 2_000, 500
WOKEN, PUBLISHED = 100, 400
# Seconds of the idle measurement, and between two publishes.
IDLE, PAUSE = 5.0, 0.05
PARK = make_request("/v1/claim", b'{"queues":[{"queue":"awaited"}],"wait":30}')
AWAITED = make_request("/v1/publish", PUBLISH.replace(b"default", b"awaited"))
# A queue without long polls.
ELSEWHERE = make_request("/v1/publish", PUBLISH.replace(b"default", b"elsewhere"))

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def measure_figures(server: Served, calm: Served) -> list[Figure]:
    """`calm` serves the same store without long polls, for comparison on the same disk."""
    publisher, beside = await open_connection(server), await open_connection(calm)
    for name in (b"awaited", b"elsewhere"):
        await ask(publisher, make_request("/v1/queues", b'{"name":"%s"}' % name))
    waiting = [await open_connection(server, PARK) for _ in range(PARKED)]
    await asyncio.sleep(2)
    idle = await measure_idle_cpu(server)
    woken = await wake(publisher, waiting[:WOKEN])
    for _, writer in waiting[:WOKEN]:
        writer.write(PARK)
    with listening(server.port, LISTENERS):
        crowded, alone = await publish_in_turn(publisher, beside)
        megabytes = server.megabytes
    for _, writer in (*waiting, publisher, beside):
        writer.close()
    return [
        Figure("parked_cpu_percent", idle, "%"),
        Figure("parked_wake_p50_ms", statistics.median(woken) * 1e3, "ms"),
        Figure("parked_wake_p99_ms", compute_quantile(woken, 0.99) * 1e3, "ms"),
        Figure("crowded_rss_mb", megabytes, "MB"),
        Figure(
            "crowded_p99_ms",
            compute_quantile(crowded, 0.99) * 1e3,
            "ms",
            compute_quantile(alone, 0.99) * 1e3,
        ),
    ]


async def open_connection(server: Served, first: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(first)
    return reader, writer


async def ask(connection: Connection, sent: bytes) -> None:
    connection[1].write(sent)
    await answer(connection[0])


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20"), head
    return await reader.readexactly(
        int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    )


async def publish_in_turn(*publishers: Connection) -> tuple[list[float], ...]:
    took: tuple[list[float], ...] = tuple([] for _ in publishers)
    for _ in range(PUBLISHED):
        for publisher, times in zip(publishers, took, strict=True):
            began = time.perf_counter()
            await ask(publisher, ELSEWHERE)
            times.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
    return took


async def measure_idle_cpu(server: Served) -> float:
    used = server.cpu
    await asyncio.sleep(IDLE)
    return (server.cpu - used) / IDLE * 100


async def wake(publisher: Connection, waiting: list[Connection]) -> list[float]:
    """Long polls are answered in order, so this waits on one connection at a time."""
    took: list[float] = []
    for reader, _ in waiting:
        began = time.perf_counter()
        publisher[1].write(AWAITED)
        async with asyncio.timeout(10):
            claimed = await answer(reader)
        took.append(time.perf_counter() - began)
        assert b'"token"' in claimed
        await answer(publisher[0])
        await asyncio.sleep(0.02)
    return took
