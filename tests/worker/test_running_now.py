"""The store knows what runs now, and short runs do not pay for it."""

import asyncio

import pytest

from penstock import Penstock
from penstock.testing.faults import Faults
from tests.app.scenes import Arranged, record, until, until_true, working

pytestmark = pytest.mark.anyio


async def test_a_run_that_lasts_is_shown_as_begun_by_its_worker(app: Penstock) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work() -> None:
        await go_on.wait()

    async with working(app) as worker:
        job = await work.aenqueue()

        async def begun() -> bool:
            return (await record(app, job.id)).begun_at is not None

        await until_true(begun)
        found = await record(app, job.id)
        assert found.consumer == worker.identity
        assert found.claimed_at is not None
        assert found.begun_at is not None
        assert found.begun_at >= found.claimed_at
        go_on.set()
        await until(lambda: worker.completed == 1)
    assert (await record(app, job.id)).begun_at is None


async def test_short_runs_write_nothing_of_their_begin() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> None: ...

    async with working(app) as worker:
        for _ in range(50):
            await work.aenqueue()
        await until(lambda: worker.completed == 50)
    assert faults.counts["mark"] == 0
    await app.aclose()
