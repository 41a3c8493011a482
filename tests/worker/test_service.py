"""A worker as a process: its place on the list of workers is a notice, and no more."""

import asyncio
import os
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock import Message, Penstock
from penstock.broker.local import Broker
from penstock.client.brokers import BrokerPool
from penstock.errors import StoreUnreachable
from penstock.testing.faults import Faults
from penstock.worker.options import WorkerOptions
from penstock.worker.process import WorkerProcess
from tests.app.scenes import until_true
from tests.local import local

pytestmark = pytest.mark.anyio
DOWN = StoreUnreachable("the store is down")


class Faulty(BrokerPool):
    def __init__(self, url: str, faults: Faults) -> None:
        super().__init__(url, "default")
        self.faults = faults

    async def open(self) -> Broker:
        return Broker(self.faults.wrap(local(await super().open()).store))


@pytest.mark.parametrize("verb", ["workers", "save_worker", "delete_worker"])
async def test_a_worker_that_cannot_be_listed_works_and_ends_well(
    tmp_path: Path, verb: str
) -> None:
    faults, url = Faults(), f"sqlite:///{tmp_path}/queue.db"
    app = Penstock(url)
    app.connections = Faulty(url, faults)
    runs: list[str] = []

    @app.task
    async def note(text: str) -> None:
        runs.append(text)

    await note.aenqueue("run")
    worker = await app.worker()
    faults.before(verb, DOWN)
    await WorkerProcess(worker, app.agents(worker.broker), stop_when_empty=True).run()
    assert (runs, len(faults.fired)) == (["run"], 1)
    await app.aclose()


async def test_a_worker_reports_its_queues_types_slots_and_version(url: str) -> None:
    app = Penstock(url)

    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    @app.task(name="bounce", queue="mail")
    async def bounce() -> None: ...

    @app.subscriber("events")
    async def note(message: Message[str]) -> None: ...

    worker = await app.worker(options=WorkerOptions(concurrency=7))
    process = WorkerProcess(worker, app.agents(worker.broker))
    running = asyncio.create_task(process.run())
    store = local(worker.broker).store

    async def is_listed() -> bool:
        return bool(await store.workers())

    await until_true(is_listed)
    (row,) = await store.workers()
    process.stop("test")
    await running
    assert (row.id, row.pid, row.slots) == (worker.identity, os.getpid(), 7)
    assert row.version == version("penstock")
    # The subscriber takes all types.
    assert (sorted(row.queues), row.types) == (["events", "mail"], {"mail": ("bounce", "send")})
    assert await store.workers() == []
    await app.aclose()
