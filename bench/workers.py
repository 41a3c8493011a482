"""Benchmark jobs that run a real worker in a child process."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bench.processes import Start
from bench.verbs import QUEUE, make_draft, run
from bench.workload import WARM_UP, make_bodies
from penstock import Message, Penstock
from penstock.cli import logs
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker

Body: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["async", "thread"]
Handle: TypeAlias = Callable[[Message[Body]], Awaitable[None] | None]
FIRST = "warm-up"
# Long enough to be sure that the queue is empty.
QUIET = 0.3


class Drained(Struct, frozen=True):
    """Results of a drain. `client` is the CPU time of the thread of the worker's loop."""

    count: int
    seconds: float
    client: float


@asynccontextmanager
async def open_app(url: str, handle: Handle) -> AsyncIterator[Penstock]:
    logs.configure("quiet")
    app = Penstock(url)
    for queue in (QUEUE, FIRST):
        app.subscriber(queue)(handle)
    try:
        yield app
    finally:
        await app.aclose()


@asynccontextmanager
async def working(
    app: Penstock, queue: str = QUEUE, lease: float | None = None
) -> AsyncIterator[Worker]:
    """Runs a worker with agents, as the command line does."""
    worker = await app.worker([queue], WorkerOptions(lease=lease))
    async with app.agents(worker.broker), worker:
        yield worker


async def read(message: Message[Body]) -> None:
    message.body  # noqa: B018 - the reference decodes too


def read_in_thread(message: Message[Body]) -> None:
    message.body  # noqa: B018


HANDLERS: dict[Kind, Handle] = {"async": read, "thread": read_in_thread}


def drain(start: Start, url: str, kind: Kind = "async") -> Drained:
    """Measures from the start of the worker to the last durable completion."""
    return run(_drain(start, url, kind))


async def _drain(start: Start, url: str, kind: Kind) -> Drained:
    async with open_app(url, HANDLERS[kind]) as app:
        broker = await app.broker()
        await app.ensure_queues(broker, [FIRST])
        await broker.publish_many([make_draft(text, FIRST) for text in make_bodies(WARM_UP)])
        async with working(app, FIRST) as worker:
            await last_end(worker)
        start()
        began, used = time.monotonic(), time.thread_time()
        async with working(app) as worker:
            ended, used_then = await last_end(worker)
            return Drained(worker.completed, ended - began, used_then - used)


async def last_end(worker: Worker) -> tuple[float, float]:
    """Returns when the queue was drained, and the CPU time of the thread by then."""
    moment = time.monotonic(), time.thread_time()
    completed = -1
    while worker.held or completed < worker.completed:
        completed = worker.completed
        worker.idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET):
                await worker.idle.wait()
                moment = time.monotonic(), time.thread_time()
    return moment


def receive(start: Start, url: str, count: int) -> list[float]:
    """Returns the seconds from each publish to the start of its handler in this process."""
    return run(_receive(start, url, count))


async def _receive(start: Start, url: str, count: int) -> list[float]:
    waits: list[float] = []
    over = asyncio.Event()

    async def handle(message: Message[Body]) -> None:
        now = time.monotonic()
        waits.append(now - message.body["sent_at"])
        if len(waits) == count:
            over.set()

    async with open_app(url, handle) as app, working(app):
        await asyncio.to_thread(start)
        await over.wait()
    return waits


def idle(start: Start, url: str, seconds: float) -> float:
    """Returns the percent of one core that an idle worker uses."""
    return run(_idle(start, url, seconds))


async def _idle(start: Start, url: str, seconds: float) -> float:
    async with open_app(url, read) as app, working(app):
        await asyncio.sleep(1.0)
        start()
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return 100 * (time.process_time() - used) / (time.monotonic() - began)


def outlive(start: Start, url: str, lease: float | None) -> float:
    """Dies on the first delivery, and returns when the second one starts."""
    return run(_outlive(start, url, lease))


async def _outlive(start: Start, url: str, lease: float | None) -> float:
    begun: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def handle(message: Message[Body]) -> None:
        if message.context.delivery.deliveries == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begun.set_result(time.monotonic())

    await asyncio.to_thread(start)
    async with open_app(url, handle) as app, working(app, lease=lease):
        return await begun
