"""Benchmark jobs that use the verbs of a broker in a child process."""

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from bench.processes import Start
from bench.workload import BULK, WARM_UP, make_bodies, make_body
from penstock import stores
from penstock.broker.local import Broker
from penstock.errors import NotFound
from penstock.model.message import Draft, Leased
from penstock.model.store_types import AnswerKind, Completion

QUEUE = "bench"
# The claim size of a worker.
BATCH = 500
RSS_UNIT = 1 if sys.platform == "darwin" else 1_024

T = TypeVar("T")
decode = msgspec.json.Decoder().decode


def run(work: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


@asynccontextmanager
async def open_broker(url: str) -> AsyncIterator[Broker]:
    async with await stores.open(url) as store:
        broker = Broker(store)
        try:
            await broker.admin.queue(QUEUE)
        except NotFound:
            await broker.admin.create_queue(QUEUE)
        yield broker


def make_draft(text: str, queue: str = QUEUE) -> Draft:
    return Draft(body=text.encode(), queue=queue)


def publish(start: Start, url: str, seconds: float, callers: int) -> float:
    """Returns messages per second. Each caller waits for its own publish."""
    return run(_publish(start, url, seconds, callers))


async def _publish(start: Start, url: str, seconds: float, callers: int) -> float:
    async with open_broker(url) as broker:
        texts = make_bodies(BULK)
        await call_until(broker, texts[:WARM_UP], lambda count: count >= WARM_UP)
        start()
        began = time.monotonic()
        until = began + seconds
        counts = await asyncio.gather(
            *(
                call_until(broker, texts, lambda _: time.monotonic() >= until)
                for _ in range(callers)
            )
        )
        return sum(counts) / (time.monotonic() - began)


async def call_until(broker: Broker, texts: list[str], over: Callable[[int], bool]) -> int:
    count = 0
    while not over(count):
        await broker.publish(make_draft(texts[count % len(texts)]))
        count += 1
    return count


def bulk(start: Start, url: str, count: int) -> float:
    """Returns messages per second, 1000 per call."""
    return run(_bulk(start, url, count))


async def _bulk(start: Start, url: str, count: int) -> float:
    async with open_broker(url) as broker:
        texts = make_bodies(BULK)
        await publish_batch(broker, texts)
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            await publish_batch(broker, texts)
        return count / (time.monotonic() - began)


async def publish_batch(broker: Broker, texts: list[str]) -> None:
    published = await broker.publish_many([make_draft(text) for text in texts])
    require(all(each.id for each in published), "a message was refused")


def fill(start: Start, url: str, count: int) -> None:
    run(_fill(start, url, count))


async def _fill(start: Start, url: str, count: int) -> None:
    async with open_broker(url) as broker:
        texts = make_bodies(BULK)
        start()
        for done in range(0, count, BULK):
            await publish_batch(broker, texts[: count - done])


def drain(start: Start, url: str, most: int) -> tuple[int, float]:
    """Returns how many messages this process drained, and in how many seconds."""
    return run(_drain(start, url, most))


async def _drain(start: Start, url: str, most: int) -> tuple[int, float]:
    async with open_broker(url) as broker:
        await drain_some(broker, WARM_UP)
        start()
        began = time.monotonic()
        count = await drain_some(broker, most)
        return count, time.monotonic() - began


async def drain_some(broker: Broker, most: int) -> int:
    """Drains messages. The next claim overlaps the completion of the last batch."""
    batches: asyncio.Queue[list[Leased]] = asyncio.Queue(maxsize=1)
    claiming = asyncio.create_task(claim_into(batches, broker, most))
    count = 0
    while batch := await batches.get():
        for message in batch:
            decode(message.body)
        await complete(broker, batch)
        count += len(batch)
    await claiming
    return count


async def claim_into(batches: asyncio.Queue[list[Leased]], broker: Broker, most: int) -> None:
    """Claims until the queue is empty or `most` were claimed, and then adds an empty batch."""
    left = most
    try:
        while left:
            taken = await broker.claim(QUEUE, consumer="bench", limit=min(BATCH, left))
            if not taken.messages:
                return
            await batches.put(taken.messages)
            left -= len(taken.messages)
    finally:
        await batches.put([])


async def complete(broker: Broker, batch: list[Leased]) -> None:
    answers = await broker.complete_many([Completion(each.id, each.fence) for each in batch])
    require(all(each.kind is AnswerKind.DONE for each in answers), "a lease was lost")


def send(start: Start, url: str, count: int, pause: float) -> list[float]:
    """Publishes bodies that contain their send time."""
    return run(_send(start, url, count, pause))


async def _send(start: Start, url: str, count: int, pause: float) -> list[float]:
    async with open_broker(url) as broker:
        await asyncio.to_thread(start)
        for number in range(count):
            await asyncio.sleep(pause)
            # The monotonic clock is shared by all processes of a machine.
            await broker.publish(make_draft(make_body(number, time.monotonic())))
    return []


def memory(start: Start, url: str, count: int, warm_up: int) -> float:
    """Returns the growth of peak memory in MB over `count` messages."""
    return run(_memory(start, url, count, warm_up))


async def _memory(start: Start, url: str, count: int, warm_up: int) -> float:
    async with open_broker(url) as broker:
        await publish_and_drain_some(broker, warm_up)
        start()
        before = read_peak()
        await publish_and_drain_some(broker, count)
        return (read_peak() - before) / 1e6


async def publish_and_drain_some(broker: Broker, count: int) -> None:
    texts = make_bodies(BULK)
    for _ in range(count // BULK):
        await publish_batch(broker, texts)
        require(await drain_some(broker, BULK) == BULK, "a message did not arrive")


def read_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def require(held: bool, text: str) -> None:
    if not held:
        raise RuntimeError(text)
