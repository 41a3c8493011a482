"""Where handlers run, and what they may do there without hurting others."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from penstock import Context, Job, Penstock
from penstock.errors import JobFailed
from penstock.model.message import State
from tests.app.scenes import counters, record, sweeping, until, working

pytestmark = pytest.mark.anyio


async def test_a_coroutine_runs_on_the_loop_and_a_function_in_a_thread(app: Penstock) -> None:
    threads: dict[str, str] = {}

    @app.task
    async def on_loop() -> None:
        threads["async"] = threading.current_thread().name

    @app.task
    def in_thread() -> None:
        threads["thread"] = threading.current_thread().name

    async with working(app) as worker:
        await on_loop.aenqueue()
        await in_thread.aenqueue()
        await until(lambda: worker.completed == 2)
    assert threads["async"] == threading.current_thread().name
    assert threads["thread"].startswith("penstock-handler-")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_as_many_run_at_once_as_the_concurrency_says(app: Penstock, kind: str) -> None:
    together = threading.Barrier(4)
    gathered = asyncio.Event()
    waiting: list[int] = []

    async def on_loop(number: int) -> None:
        waiting.append(number)
        if len(waiting) == 4:
            gathered.set()
        await gathered.wait()

    def in_thread(number: int) -> None:
        together.wait(30)

    task: Any = app.task(on_loop if kind == "async" else in_thread)
    async with working(app, concurrency=4) as worker:
        await app.aenqueue_many(task.call(number) for number in range(4))
        await until(lambda: worker.completed == 4)


async def test_a_handler_that_blocks_the_loop_does_not_stop_the_heartbeats(
    filed: Penstock,
) -> None:
    """Others held at the time would be lost, and so would it: the heart has its own thread."""
    begun = asyncio.Event()

    @filed.task
    async def block() -> None:
        await begun.wait()
        until_then = time.monotonic() + 1.5
        while time.monotonic() < until_then:
            pass

    @filed.task
    async def wait() -> str:
        await begun.wait()
        await asyncio.sleep(0)
        return "still held"

    with sweeping(filed.url):
        async with working(filed, lease=0.4) as worker:
            waiting, blocking = await wait.aenqueue(), await block.aenqueue()
            await until(lambda: len(worker.held) == 2)
            begun.set()
            assert await waiting.aresult(30) == "still held"
            await blocking.aresult(30)
            assert worker.lost == 0
    assert [await counters(filed, job.id) for job in (waiting, blocking)] == [
        ("completed", 1, 1)
    ] * 2


class Odd(BaseException):
    """Not even an Exception."""


def raise_odd() -> NoReturn:
    raise Odd("odd")


def leave() -> NoReturn:
    raise SystemExit(3)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def give_up() -> NoReturn:
    raise asyncio.CancelledError("somebody else's")


def end_of() -> NoReturn:
    raise StopIteration(5)


def close() -> NoReturn:
    raise GeneratorExit


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    ("act", "error"),
    [
        (raise_odd, "Odd: odd"),
        (leave, "SystemExit: 3"),
        (interrupt, "KeyboardInterrupt"),
        (give_up, "CancelledError: somebody else's"),
        (end_of, "StopIteration"),
        (close, "GeneratorExit"),
    ],
)
async def test_whatever_a_handler_raises_ends_its_run_and_nothing_else(
    app: Penstock, kind: str, act: Any, error: str
) -> None:
    async def on_loop() -> None:
        act()

    def in_thread() -> None:
        act()

    task: Any = app.task(max_attempts=1)(on_loop if kind == "async" else in_thread)

    @app.task
    async def after() -> str:
        return "goes on"

    async with working(app, concurrency=1):
        job = await task.aenqueue()
        with pytest.raises(JobFailed, match=error):
            await job.aresult(30)
        assert await (await after.aenqueue()).aresult(30) == "goes on"


async def test_a_task_that_awaits_something_cancelled_has_failed(app: Penstock) -> None:
    @app.task(max_attempts=1)
    async def wait() -> None:
        waiting = asyncio.create_task(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await waiting

    async with working(app, concurrency=1):
        for _ in range(3):
            with pytest.raises(JobFailed, match="CancelledError"):
                await (await wait.aenqueue()).aresult(30)


async def test_a_result_that_cannot_be_stored_is_recorded_and_not_tried_again(
    app: Penstock,
) -> None:
    @app.task
    async def weird() -> object:
        return object()

    @app.task
    def huge() -> str:
        return "x" * 2_000_000

    async with working(app):
        jobs: list[Job[Any]] = [await weird.aenqueue(), await huge.aenqueue()]
        with pytest.raises(JobFailed, match=r"CodecError: result .*: object cannot be stored"):
            await jobs[0].aresult(30)
        with pytest.raises(JobFailed, match="CodecError: result has 2000002 bytes"):
            await jobs[1].aresult(30)
    assert [await counters(app, job.id) for job in jobs] == [("dead", 1, 1)] * 2


async def test_arguments_that_do_not_fit_are_recorded_and_not_tried_again(app: Penstock) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    other = Penstock(app.url)
    other.connections = app.connections

    @other.task(name="double")
    async def wrong(number: str) -> int:
        return len(number)

    async with working(app):
        job = await wrong.aenqueue("two")
        with pytest.raises(JobFailed, match="CodecError: task 'double': Expected `int`"):
            await job.aresult(30)
    assert await counters(app, job.id) == ("dead", 1, 1)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_that_forks_leaves_one_worker(
    filed: Penstock, tmp_path: Path, kind: str
) -> None:
    """The copy must not go on and run what the worker holds."""
    runs = tmp_path / "runs"

    def in_thread(number: int) -> None:
        with open(runs, "a") as file:
            file.write(f"{os.getpid()}\n")
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            # A copy that goes on after this would never end by itself.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)

    async def on_loop(number: int) -> None:
        in_thread(number)

    task: Any = filed.task(on_loop if kind == "async" else in_thread)
    jobs = await filed.aenqueue_many(task.call(number) for number in range(5))
    async with working(filed, concurrency=1) as worker:
        await until(lambda: worker.completed == 5)
    assert runs.read_text().split() == [str(os.getpid())] * 5
    assert {(await record(filed, job.id)).state for job in jobs} == {State.COMPLETED}


async def test_progress_may_be_told_from_any_thread(app: Penstock) -> None:
    @app.task
    def work(context: Context) -> None:
        helper = threading.Thread(target=context.progress, args=(1, 2))
        helper.start()
        helper.join()

    async with working(app) as worker:
        job = await work.aenqueue()
        await job.aresult(30)
        await until(lambda: not worker.held)


async def test_threads_are_hired_as_they_are_needed(app: Penstock) -> None:
    @app.task
    def work() -> None: ...

    async with working(app, concurrency=5_000) as worker:
        await app.aenqueue_many(work.call() for _ in range(3))
        await until(lambda: worker.completed == 3)
        names = [each.name for each in threading.enumerate() if "handler" in each.name]
        assert 1 <= len(names) <= 3


async def test_a_full_lane_does_not_hold_up_another(app: Penstock) -> None:
    """Slow functions in threads, and a coroutine of another queue that wants its turn."""
    go_on = threading.Event()

    @app.task(queue="reports")
    def slow() -> None:
        go_on.wait(30)

    @app.task(queue="mail")
    async def quick() -> str:
        return "quick"

    await app.aenqueue_many(slow.call() for _ in range(100))
    async with working(app, concurrency=1, fetch_batch_size=10):
        assert await (await quick.aenqueue()).aresult(30) == "quick"
        go_on.set()


async def test_an_app_may_have_more_queues_than_a_claim_names(app: Penstock) -> None:
    async def work() -> str:
        return "done"

    tasks = [app.task(name=f"task{n}", queue=f"queue{n}")(work) for n in range(20)]
    async with working(app):
        jobs = [await task.aenqueue() for task in tasks]
        assert [await job.aresult(30) for job in jobs] == ["done"] * 20
