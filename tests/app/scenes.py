"""What tests of the app and of the worker begin with."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio

from penstock import Penstock, stores
from penstock.agents.reclaimer import Reclaimer
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.client.brokers import BrokerPool
from penstock.model.message import Record
from penstock.runner import Runner
from penstock.testing.faults import Faults
from penstock.testing.simulation import ManualClock
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker

CAP = 60.0


class Arranged(BrokerPool):
    """On a clock that the test turns, and a store that fails when the test says so."""

    def __init__(
        self, url: str, clock: ManualClock | None = None, faults: Faults | None = None
    ) -> None:
        super().__init__(url, "default")
        self.clock = clock
        self.faults = faults

    async def open(self) -> Broker:
        store = await stores.open(self.url, clock=self.clock)
        return Broker(store if self.faults is None else self.faults.wrap(store))


@asynccontextmanager
async def working(app: Penstock, *queues: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker with its agents beside it."""
    worker = await app.worker(queues, WorkerOptions(**options))
    async with app.agents(await app.broker()), worker:
        yield worker


@asynccontextmanager
async def turning(app: Penstock, **options: Any) -> AsyncIterator[tuple[Worker, Runner]]:
    """The same, with the agents at hand: a test that turned the clock nudges them."""
    worker = await app.worker((), WorkerOptions(**options))
    async with app.agents(await app.broker()) as agents, worker:
        yield worker, agents


@contextmanager
def sweeping(url: str) -> Iterator[None]:
    """Somebody else looks for leases that ran out: in a thread, many times a second."""
    stopped = threading.Event()

    async def sweep() -> None:
        async with await stores.open(url) as store:
            agent = Reclaimer(store, QueueCache(store), "other")
            while not stopped.wait(0.02):
                await agent.tick()

    thread = threading.Thread(target=lambda: asyncio.run(sweep()))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def claim_for_all(app: Penstock, queue: str) -> None:
    """Adds handlers that run in threads and on the loop: what is claimed for the free slots of the
    one may be for the other, and then has to wait."""

    @app.task(name="unused in a thread", queue=queue)
    def in_thread() -> None: ...

    @app.task(name="unused on the loop", queue=queue)
    async def on_loop() -> None: ...


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(CAP):
        while True:
            if holds():
                return
            await anyio.sleep(0.002)


async def until_true(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(CAP):
        while True:
            if await holds():
                return
            await anyio.sleep(0.005)


async def record(app: Penstock, id: int) -> Record:
    return await (await app.broker()).admin.get(id)


async def counters(app: Penstock, id: int) -> tuple[str, int, int]:
    """Its state, attempts and deliveries."""
    found = await record(app, id)
    return found.state.value, found.attempts, found.deliveries
