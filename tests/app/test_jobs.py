"""Handles on jobs: result, status, cancel, and many at once."""

import asyncio
from typing import Any, cast

import pytest

from penstock import Context, Penstock, Reject, await_many
from penstock.errors import (
    Archived,
    InvalidState,
    JobCancelled,
    JobFailed,
    NotFound,
)
from penstock.model.message import State
from penstock.testing.simulation import ManualClock
from tests.app.scenes import Arranged, record, until, until_true, working
from tests.local import local

pytestmark = pytest.mark.anyio


async def test_a_job_tells_its_state_and_its_whole_record(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    job = await send.aenqueue()
    assert await job.astatus() is State.READY
    async with working(app):
        await job.aresult(30)
    assert await job.astatus() is State.COMPLETED
    assert [row.verb for row in (await job.arecord()).timeline] == ["complete"]
    assert repr(job) == f"Job({job.id})"


async def test_a_result_that_is_not_there_yet_times_out(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    job = await send.aenqueue()
    with pytest.raises(TimeoutError, match=r"job 1 did not finish within 0.01 s"):
        await job.aresult(timeout=0.01)


async def test_a_failed_job_says_why(app: Penstock) -> None:
    @app.task
    async def send() -> None:
        raise Reject("no such address")

    job = await send.aenqueue()
    async with working(app):
        with pytest.raises(JobFailed, match=f"job {job.id} is dead: Reject: no such address"):
            await job.aresult(30)


async def test_a_job_is_cancelled_before_it_runs(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    job = await send.aenqueue()
    await job.acancel()
    assert await job.astatus() is State.CANCELLED
    with pytest.raises(JobCancelled, match="cancelled"):
        await job.aresult(1)
    with pytest.raises(InvalidState):
        await job.acancel()


async def test_a_running_job_is_asked_to_stop(app: Penstock) -> None:
    """It hears of it when its lease is renewed, at a third of it."""

    @app.task
    async def work(context: Context) -> None:
        while True:
            context.raise_if_cancelled()
            await asyncio.sleep(0.01)

    async with working(app, lease=0.3) as worker:
        job = await work.aenqueue()
        await until(lambda: job.id in worker.held)
        await job.acancel()
        with pytest.raises(JobCancelled, match="cancelled"):
            await job.aresult(30)
    assert await job.astatus() is State.CANCELLED


async def test_a_run_that_returns_in_spite_of_a_cancel_is_completed(app: Penstock) -> None:
    @app.task
    async def work(context: Context) -> str:
        await until(lambda: context.cancelled)
        return "done anyway"

    async with working(app, lease=0.3) as worker:
        job = await work.aenqueue()
        await until(lambda: job.id in worker.held)
        await job.acancel()
        assert await job.aresult(30) == "done anyway"


async def test_a_run_that_fails_after_a_cancel_is_cancelled_not_retried(app: Penstock) -> None:
    @app.task
    async def work(context: Context) -> None:
        await until(lambda: context.cancelled)
        raise ValueError("in the middle of it")

    async with working(app, lease=0.3) as worker:
        job = await work.aenqueue()
        await until(lambda: job.id in worker.held)
        await job.acancel()
        with pytest.raises(JobCancelled, match="cancelled"):
            await job.aresult(30)


async def test_a_forced_cancel_ends_it_now_and_the_run_learns_that_its_lease_is_lost(
    app: Penstock,
) -> None:
    told: list[str] = []

    @app.task
    async def work(context: Context) -> None:
        await until(lambda: context.lost)
        told.append("lost")

    async with working(app, lease=0.3) as worker:
        job = await work.aenqueue()
        await until(lambda: job.id in worker.held)
        await job.acancel(force=True)
        assert await job.astatus() is State.CANCELLED
        await until(lambda: bool(told) and not worker.held)
        assert (worker.lost, worker.completed) == (1, 0)


async def test_many_results_come_in_the_order_of_the_jobs(app: Penstock) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0.02 if number == 0 else 0)
        return 2 * number

    jobs = await app.aenqueue_many(double.call(number) for number in range(20))
    async with working(app):
        assert await await_many(jobs, timeout=30) == list(range(0, 40, 2))


async def test_of_many_one_that_failed_raises(app: Penstock) -> None:
    @app.task
    async def pick(number: int) -> int:
        if number == 1:
            raise Reject("one is none")
        return number

    jobs = await app.aenqueue_many(pick.call(number) for number in range(3))
    async with working(app):
        with pytest.raises(JobFailed, match="one is none"):
            await await_many(jobs, timeout=30)
    with pytest.raises(TimeoutError):
        await await_many([await pick.aenqueue(5)], timeout=0.01)


async def test_a_job_of_another_store_is_not_found(app: Penstock) -> None:
    @app.task
    async def send() -> None: ...

    with pytest.raises(NotFound):
        await send.job(12345).astatus()


async def test_a_result_of_another_type_is_refused_by_name(app: Penstock) -> None:
    @app.task(name="send")
    async def send() -> str:
        lie: Any = 5
        return cast(str, lie)

    async with working(app):
        with pytest.raises(JobFailed, match="result of task 'send': Expected `str`"):
            await (await send.aenqueue()).aresult(30)


async def test_results_are_kept_for_a_day() -> None:
    clock = ManualClock()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, clock)

    @app.task
    async def answer() -> int:
        return 42

    async with working(app):
        job = await answer.aenqueue()
        assert await job.aresult(30) == 42
    clock.advance(23 * 3600)
    store = local(await app.broker()).store
    await store.sweep_keys(100)
    assert await job.aresult(30) == 42
    clock.advance(2 * 3600)
    await store.sweep_keys(100)
    with pytest.raises(Archived, match=f"the result of job {job.id} has expired"):
        await job.aresult(30)
    await app.aclose()


async def test_progress_is_shown_while_the_job_runs(app: Penstock) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work(context: Context) -> None:
        context.progress(3, total=10, note="three\x00 of \ud800 ten")
        await go_on.wait()

    async with working(app):
        job = await work.aenqueue()

        async def shown() -> bool:
            return (await record(app, job.id)).percent is not None

        await until_true(shown)
        found = await record(app, job.id)
        assert (found.percent, found.note) == (30.0, "three\ufffd of ? ten")
        go_on.set()
        await job.aresult(30)


@pytest.mark.parametrize(("done", "total"), [(1, 0), (float("nan"), 10), ("half", 1)])
async def test_progress_of_nothing_is_an_error_of_the_handler(
    app: Penstock, done: float, total: float
) -> None:
    @app.task
    async def work(context: Context) -> None:
        context.progress(done, total)

    async with working(app):
        with pytest.raises(JobFailed, match="is invalid"):
            await (await work.options(max_attempts=1).aenqueue()).aresult(30)


async def test_the_result_of_an_edited_and_moved_job_is_that_of_its_successor(
    app: Penstock,
) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    job, other = await double.aenqueue(1), await double.aenqueue(21)
    broker = await app.broker()
    edited = await broker.admin.edit(job.id, (await other.arecord()).message.body)
    await broker.admin.cancel(other.id)
    await broker.admin.create_queue("elsewhere")
    moved = await broker.admin.move(edited.id, "elsewhere")
    await broker.admin.move(moved.id, "default")
    async with working(app):
        assert await job.aresult(30) == 42
