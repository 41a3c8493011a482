"""When a worker that stops with the last message may take its queue for empty."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from penstock import Penstock, stores
from penstock.broker.local import Broker
from penstock.model.message import Draft, Nack, State
from penstock.model.store_types import Query
from penstock.runner import Runner
from penstock.store import Store
from penstock.testing.simulation import ManualClock
from penstock.worker.process import WorkerProcess
from penstock.worker.worker import Worker

pytestmark = pytest.mark.anyio


class Meanwhile:
    """A store on which another consumer claims a retry as soon as somebody has looked for it."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.retries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def find(self, query: Query) -> Any:
        if query.state is State.SCHEDULED and self.retries:
            self.retries -= 1
            self.clock.advance(3_600)
            await self.store.promote(10)
            (_,) = (await Broker(self.store).claim("default", consumer="other")).messages
        return await self.store.find(query)


@pytest.fixture
async def scene() -> AsyncIterator[tuple[Meanwhile, WorkerProcess]]:
    clock = ManualClock()
    async with await stores.open("sqlite://", clock=clock) as store:
        meanwhile = Meanwhile(store, clock)
        app = Penstock("sqlite://")

        @app.task(name="job")
        async def job() -> None: ...

        worker = Worker(Broker(cast(Store, meanwhile)), app.handlers(()))
        await worker.routes.open(worker.broker, worker.handlers, worker.scope)
        yield meanwhile, WorkerProcess(worker, Runner([]), stop_when_empty=True)


async def test_a_retry_that_becomes_due_between_two_looks_is_not_overlooked(
    scene: tuple[Meanwhile, WorkerProcess],
) -> None:
    meanwhile, service = scene
    broker = Broker(meanwhile.store)
    await broker.publish(Draft(type="job"))
    (leased,) = (await broker.claim("default", consumer="other")).messages
    await broker.settle(leased, Nack(delay=60))
    assert not await service.is_empty()
    meanwhile.retries = 1
    assert not await service.is_empty()
    assert not await service.is_empty()


async def test_what_was_never_run_and_is_not_due_is_not_waited_for(
    scene: tuple[Meanwhile, WorkerProcess],
) -> None:
    meanwhile, service = scene
    await Broker(meanwhile.store).publish(Draft(type="job", delay=60))
    assert await service.is_empty()
