"""Benchmarks batches of 100 over HTTP against the same verbs in one process."""

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable

from bench.figures import Figure, compare_values
from bench.http.asking import Next, make_limited_requests, make_request, time_requests
from bench.http.bodies import BODY, PUBLISH
from bench.http.serving import Served
from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion

BATCH, CALLERS = 100, 8
TOKEN = re.compile(rb'"token":"([^"]+)"')
CLAIM = make_request("/v1/claim", b'{"queues":[{"queue":"default"}],"limit":%d}' % BATCH)


async def measure_figures(server: Served, url: str, count: int, repeats: int) -> list[Figure]:
    """Runs a fixed number of messages, so that all published ones are consumed."""
    rates: dict[str, list[float]] = {
        name: [] for name in ("put", "got", "put inside", "got inside")
    }
    async with await stores.open(url) as store:
        broker = Broker(store)
        for _ in range(repeats):
            for name, seconds in (
                ("put", await time_requests(server, publishing(count), CALLERS)),
                ("got", await time_requests(server, consuming, CALLERS)),
                ("put inside", await time_work(make_publisher(broker, count))),
                ("got inside", await time_work(lambda: consume(broker))),
            ):
                rates[name].append(count / seconds)
    return [
        compare_values("batch_publish", "msg/s", rates["put inside"], rates["put"]),
        compare_values("batch_consume", "msg/s", rates["got inside"], rates["got"]),
    ]


def publishing(count: int) -> Next:
    batch = b'{"messages":[' + b",".join([PUBLISH] * BATCH) + b"]}"
    return make_limited_requests(count // BATCH, "/v1/publish/batch", batch)


def consuming(answer: bytes) -> bytes | None:
    """Alternates claim and complete until the queue is empty."""
    if not answer.startswith(b'{"messages":['):
        return CLAIM
    items = b",".join(b'{"token":"%s"}' % token for token in TOKEN.findall(answer))
    return make_request("/v1/complete/batch", b'{"items":[' + items + b"]}") if items else None


async def time_work(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CALLERS)))
    return time.perf_counter() - began


def make_publisher(broker: Broker, count: int) -> Callable[[], Awaitable[None]]:
    left = itertools.repeat(None, count // BATCH)

    async def publish() -> None:
        for _ in left:
            await broker.publish_many([Draft(body=BODY) for _ in range(BATCH)])

    return publish


async def consume(broker: Broker) -> None:
    while taken := (await broker.claim("default", consumer="bench", limit=BATCH)).messages:
        await broker.complete_many([Completion(each.id, each.fence) for each in taken])
