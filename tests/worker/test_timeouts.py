"""A run that exceeds its timeout ends, whatever its handler does."""

import asyncio
import contextlib
import threading

import pytest

from penstock import Message, Penstock
from penstock.errors import JobFailed
from penstock.model.message import Draft, State
from tests.app.scenes import record, sweeping, until, until_true, working

pytestmark = pytest.mark.anyio


async def test_a_coroutine_is_cancelled_and_tried_again(app: Penstock) -> None:
    cancelled: list[str] = []

    @app.task(timeout=0.1)
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append("cleaned up")
            raise

    async with working(app) as worker:
        job = await slow.aenqueue()
        await until(lambda: worker.settled == 1)
    found = await record(app, job.id)
    assert (found.state, found.attempts) == (State.SCHEDULED, 1)
    assert (found.reason, found.error) == ("TIMEOUT", "TimedOut: run exceeded its timeout")
    assert cancelled == ["cleaned up"]


async def test_the_runner_of_a_run_that_timed_out_goes_on(app: Penstock) -> None:
    @app.task
    async def sleep(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    short = sleep.options(timeout=0.05, max_attempts=1)
    async with working(app, concurrency=1):
        for _ in range(3):
            late, fine = await short.aenqueue(100), await sleep.aenqueue(0)
            with pytest.raises(JobFailed, match="TimedOut"):
                await late.aresult(30)
            assert await fine.aresult(30) == "slept"


async def test_a_thread_is_given_up_and_another_takes_its_place(app: Penstock) -> None:
    go_on = threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def stuck() -> None:
        go_on.wait(60)

    @app.task
    def after() -> str:
        return "goes on"

    async with working(app, concurrency=1) as worker:
        job = await stuck.aenqueue()
        with pytest.raises(JobFailed, match="its thread is still running"):
            await job.aresult(30)
        assert await (await after.aenqueue()).aresult(30) == "goes on"
        go_on.set()
        assert await (await after.aenqueue()).aresult(30) == "goes on"
        await until(lambda: not worker.busy)
    assert (worker.completed, worker.settled, worker.lost) == (2, 1, 0)


async def test_a_coroutine_that_does_not_heed_its_cancellation_is_given_up(app: Penstock) -> None:
    go_on = asyncio.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    @app.task
    async def after() -> str:
        return "goes on"

    async with working(app, concurrency=1, grace=0.1) as worker:
        job = await stubborn.aenqueue()
        with pytest.raises(JobFailed, match="ignored its cancellation"):
            await job.aresult(30)
        assert await (await after.aenqueue()).aresult(30) == "goes on"
        go_on.set()
        assert await (await after.aenqueue()).aresult(30) == "goes on"
    assert (worker.completed, worker.settled) == (2, 1)


async def test_a_coroutine_that_finishes_when_it_is_cancelled_has_finished(app: Penstock) -> None:
    @app.task(timeout=0.05)
    async def tidy() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return "in the last moment"

    async with working(app, concurrency=1):
        for _ in range(2):
            assert await (await tidy.aenqueue()).aresult(30) == "in the last moment"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_batch_that_takes_too_long_times_out_as_a_whole(app: Penstock, kind: str) -> None:
    go_on = threading.Event()

    async def on_loop(messages: list[Message[int]]) -> None:
        if messages[0].body == 0:
            await asyncio.sleep(100)

    def in_thread(messages: list[Message[int]]) -> None:
        if messages[0].body == 0:
            go_on.wait(60)

    app.subscriber("orders", batch=10, timeout=0.1, policy="reject_on_error")(
        on_loop if kind == "async" else in_thread
    )
    ids = [(await app.apublish(Draft(queue="orders", body=b"0"))).id for _ in range(3)]
    async with working(app) as worker:
        await until(lambda: worker.settled == 3)
        await app.apublish(Draft(queue="orders", body=b"1"))
        await until(lambda: worker.completed == 1)
        go_on.set()
    assert {(await record(app, id)).error for id in ids} == {"TimedOut: run exceeded its timeout"}


async def test_a_run_that_blocks_the_loop_past_its_timeout_and_grace_is_let_go(
    filed: Penstock,
) -> None:
    """Nobody can end it, but its lease is renewed no more: another worker may take it."""
    go_on = threading.Event()

    @filed.task(timeout=0.1)
    async def block() -> None:
        go_on.wait(60)

    async def given_back() -> bool:
        broker = await filed.connections.open()
        async with broker:
            found = await broker.admin.get(1)
        return found.state is State.READY and found.reason == "LEASE_EXPIRED"

    def release_when_reclaimed() -> None:
        try:
            asyncio.run(until_true(given_back))
        finally:
            go_on.set()

    with sweeping(filed.url):
        async with working(filed, lease=0.3, grace=0.1) as worker:
            watching = threading.Thread(target=release_when_reclaimed)
            await block.aenqueue()
            watching.start()
            await until(lambda: worker.lost > 0)
            watching.join()
