"""A worker as a process: its place on the list of workers is a notice, and no more."""

from pathlib import Path

import pytest

from penstock import Penstock
from penstock.broker.local import Broker
from penstock.client.brokers import BrokerPool
from penstock.errors import StoreUnreachable
from penstock.testing.faults import Faults
from penstock.worker.process import WorkerProcess
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
