"""The ends of runs are written, whatever the store answers."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import pytest
from structlog.testing import capture_logs

from penstock import Context, Penstock
from penstock.errors import NotFound, OutcomeUnknown, StoreBusy, StoreError
from penstock.model.message import State
from penstock.model.store_types import Answer, AnswerKind
from penstock.testing.faults import Faults
from tests.app.scenes import Arranged, counters, until, working

pytestmark = pytest.mark.anyio
P = ParamSpec("P")
R = TypeVar("R")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def app(faults: Faults) -> Penstock:
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)
    return app


@pytest.mark.parametrize(
    "error", [StoreBusy("locked"), StoreError("disk"), OutcomeUnknown("cut off")]
)
async def test_an_outage_loses_nothing(app: Penstock, faults: Faults, error: Exception) -> None:
    @app.task
    async def work(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number

    jobs = await app.aenqueue_many(work.options(max_attempts=1).call(n) for n in range(6))
    faults.before("complete", error)
    faults.after("complete", error, call=2)
    faults.before("leases", error)
    faults.after("settle", error)
    async with working(app) as worker:
        await until(lambda: worker.completed + worker.settled == 6)
        assert (worker.completed, worker.settled, worker.lost) == (3, 3, 0)
    assert [await counters(app, job.id) for job in jobs] == [
        ("completed", 1, 1),
        ("dead", 1, 1),
    ] * 3


async def test_one_end_that_cannot_be_written_does_not_stop_the_rest(
    app: Penstock, faults: Faults
) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    jobs = await app.aenqueue_many(work.call(n) for n in range(4))
    # The batch, and then the first of its messages alone.
    faults.before("complete", NotFound("who knows"))
    faults.before("complete", NotFound("who knows"), call=2)
    with capture_logs() as logs:
        async with working(app) as worker:
            await until(lambda: worker.completed == 3 and not worker.held)
    assert [entry["id"] for entry in logs if entry["event"] == "settle_failed"] == [jobs[0].id]


class Held(Faults):
    """As an engine whose rows somebody's open transaction holds: the first answer is BUSY."""

    async def call(
        self, verb: str, method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        self.counts[verb] += 1
        if verb in ("complete", "settle") and self.counts[verb] == 1:
            return cast(R, [Answer(AnswerKind.BUSY)])
        return await method(*args, **kwargs)


async def test_a_busy_row_is_asked_for_again() -> None:
    faults = Held()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task(max_attempts=1)
    async def work(number: int) -> int:
        if number == 1:
            raise ValueError("odd")
        return number

    async with working(app) as worker:
        jobs = [await work.aenqueue(number) for number in range(2)]
        await until(lambda: worker.completed + worker.settled == 2)
        assert worker.lost == 0
    assert (faults.counts["complete"], faults.counts["settle"]) == (2, 2)
    assert [await counters(app, job.id) for job in jobs] == [("completed", 1, 1), ("dead", 1, 1)]


async def test_a_note_that_cannot_be_written_is_only_a_note(app: Penstock, faults: Faults) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work(context: Context) -> str:
        context.progress(1, 2)
        await go_on.wait()
        return "done"

    faults.before("mark", StoreBusy("locked"))
    async with working(app):
        job = await work.aenqueue()
        await until(lambda: faults.counts["mark"] == 1)
        go_on.set()
        assert await job.aresult(30) == "done"


async def test_many_notes_are_few_writes(app: Penstock, faults: Faults) -> None:
    @app.task
    async def work(context: Context) -> None:
        for done in range(1_000):
            context.progress(done, 1_000)
            await asyncio.sleep(0)

    async with working(app):
        await (await work.aenqueue()).aresult(30)
    assert faults.counts["mark"] < 20


async def test_a_loop_of_the_worker_that_failed_goes_on(app: Penstock, faults: Faults) -> None:
    @app.task
    async def work() -> str:
        return "done"

    faults.before("mark", ValueError("must not happen"))

    @app.task
    async def noisy(context: Context) -> str:
        context.progress(1, 2)
        await until(lambda: faults.counts["mark"] == 1)
        return "done"

    with capture_logs() as logs:
        async with working(app):
            assert await (await noisy.aenqueue()).aresult(30) == "done"
            assert await (await work.aenqueue()).aresult(30) == "done"
    assert "worker_loop_failed" in [entry["event"] for entry in logs]


async def test_a_locked_file_only_delays_the_ends(tmp_path: Path) -> None:
    """Somebody holds the write lock of the real file for a while."""
    path = tmp_path / "queue.db"
    app = Penstock(f"sqlite:///{path}")
    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return "done"

    async with working(app) as worker:
        jobs = await app.aenqueue_many(work.call() for _ in range(5))
        await until(lambda: len(worker.held) == 5)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            go_on.set()
            await until(lambda: worker.finished == 5)
            assert await jobs[0].astatus() is State.CLAIMED
            db.execute("ROLLBACK")
        assert [await job.aresult(30) for job in jobs] == ["done"] * 5
        assert worker.lost == 0
    await app.aclose()
