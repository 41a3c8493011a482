"""Callers without a loop share one in the background, also after a fork."""

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock import Draft, Penstock, wait_many
from penstock.app.task import Task
from penstock.errors import InvalidState, JobFailed, NotFound, PenstockError
from penstock.model.message import State
from tests.app.scenes import CAP, until_true, working
from tests.servers.postgres import Postgres


def double(number: int) -> int:
    return 2 * number


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    with ExitStack() as ending:
        url = f"sqlite:///{tmp_path}/queue.db"
        if request.param == "postgres":
            server: Postgres = request.getfixturevalue("postgres_server")
            url = ending.enter_context(server.database())
        app = Penstock(url)
        ending.callback(app.close)
        yield app


@pytest.fixture
def task(app: Penstock) -> Task[[int], int]:
    return app.task(name="double")(double)


def drain(app: Penstock) -> None:
    """Another loop, with a worker that runs until nothing is left."""

    async def drained() -> bool:
        return not await (await app.broker()).admin.find(state=State.READY, limit=1)

    async def main() -> None:
        async with working(app):
            await until_true(drained)
        await app.aclose()

    asyncio.run(main())


async def use_both_halves(app: Penstock, task: Task[[int], int]) -> None:
    await asyncio.to_thread(task.enqueue, 1)
    await task.aenqueue(2)
    await app.aclose()


def test_aclose_closes_both_halves(app: Penstock, task: Task[[int], int]) -> None:
    before = set(threading.enumerate())
    asyncio.run(use_both_halves(app, task))
    assert not app.portal.open
    assert not app.connections.opening
    assert set(threading.enumerate()) <= before
    assert task.enqueue(3).status() is State.READY


def test_everything_works_without_a_loop(app: Penstock, task: Task[[int], int]) -> None:
    job = task.enqueue(4)
    many = app.enqueue_many((task.call(number) for number in range(3)), atomic=True)
    other = task.options(delay=100).enqueue(1)
    assert job.status() is State.READY
    with pytest.raises(TimeoutError):
        job.result(timeout=0.01)
    drain(app)
    assert job.result(timeout=30) == 8
    assert wait_many(many, timeout=30) == [0, 2, 4]
    assert job.record().state is State.COMPLETED
    other.cancel()
    with pytest.raises(JobFailed):
        other.result(timeout=30)
    assert wait_many([]) == []
    assert app.publish(Draft(queue="orders", body=b"1")).id > 0


def test_threads_share_one_loop(app: Penstock, task: Task[[int], int]) -> None:
    before = running("penstock-portal")
    with ThreadPoolExecutor(8) as threads:
        jobs = list(threads.map(task.enqueue, range(40)))
    assert len({job.id for job in jobs}) == 40
    assert len(running("penstock-portal") - before) == 1


def running(name: str) -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == name}


@pytest.mark.anyio
async def test_a_sync_call_inside_a_running_loop_is_refused_and_names_its_twin(
    app: Penstock, task: Task[[int], int]
) -> None:
    with pytest.raises(InvalidState, match="aenqueue"):
        task.enqueue(1)
    job = await task.aenqueue(1)
    for call in (job.result, job.status, job.cancel, job.record):
        with pytest.raises(InvalidState, match="async variant"):
            call()
    with pytest.raises(InvalidState):
        wait_many([job])
    # In a thread it may wait: the loop goes on.
    assert await asyncio.to_thread(job.status) is State.READY
    await app.aclose()
    await asyncio.to_thread(app.close)


def test_a_closed_app_can_be_used_again(app: Penstock, task: Task[[int], int]) -> None:
    first = task.enqueue(1)
    app.close()
    app.close()
    assert first.status() is State.READY
    assert task.enqueue(2).id > first.id


def test_a_loop_that_ended_leaves_nothing_behind(app: Penstock, task: Task[[int], int]) -> None:
    """Nobody closed the app there: the next loop does, even if it has the address of the last."""
    before = running("penstock-writer")
    for number in range(5):
        asyncio.run(use(task, number))
        gc.collect()
    assert len(running("penstock-writer") - before) <= 1
    app.run(app.broker())
    assert len(app.connections.opening) == 1


async def use(task: Task[[int], int], number: int) -> None:
    assert await (await task.aenqueue(number)).astatus() is State.READY


def test_a_store_in_memory_is_not_another_one_on_another_loop() -> None:
    app = Penstock("sqlite://")
    task = app.task(name="double")(double)
    asyncio.run(use(task, 1))
    with pytest.raises(InvalidState, match="one event loop only"):
        asyncio.run(use(task, 2))


def test_a_store_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/later/queue.db")
    task = app.task(name="double")(double)
    with pytest.raises(Exception, match="no directory"):
        task.enqueue(1)
    (tmp_path / "later").mkdir()
    assert task.enqueue(1).status() is State.READY
    app.close()


def fork_and_enqueue(task: Task[[int], int]) -> int:
    """The id of a job that a copy of this process enqueued."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, str(task.enqueue(7).id).encode())
        except PenstockError as error:
            os.write(write_end, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    assert told.isdigit(), told
    return int(told)


def test_a_forked_child_enqueues_and_its_parent_goes_on(
    app: Penstock, task: Task[[int], int]
) -> None:
    before = task.enqueue(1)
    ids = [fork_and_enqueue(task) for _ in range(3)]
    after = task.enqueue(2)
    assert before.id < ids[0] < ids[1] < ids[2] < after.id
    assert task.job(ids[2]).status() is State.READY


def test_a_fork_while_other_threads_enqueue_does_not_hang(
    app: Penstock, task: Task[[int], int]
) -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            task.enqueue(1)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert all(fork_and_enqueue(task) for _ in range(5))
    finally:
        stop.set()
        thread.join()


def enqueue_inherited(line: Connection, task: Task[[int], int]) -> None:
    line.send([task.enqueue(number).id for number in range(3)])


def test_a_child_of_multiprocessing_enqueues(app: Penstock, task: Task[[int], int]) -> None:
    first = task.enqueue(1)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=enqueue_inherited, args=(theirs, task))
    child.start()
    theirs.close()
    assert ours.poll(CAP)
    ids = ours.recv()
    child.join()
    assert child.exitcode == 0
    assert [task.job(id).status() for id in ids] == [State.READY] * 3
    assert task.enqueue(1).id > max(ids) > first.id


def test_an_interrupted_wait_leaves_the_app_usable(app: Penstock, task: Task[[int], int]) -> None:
    job = task.enqueue(1)
    app.run(job.astatus())

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = threading.Timer(0.05, interrupt)

    def wait() -> None:
        timer.start()
        job.result(timeout=CAP)

    with pytest.raises(KeyboardInterrupt):
        wait()
    timer.join()
    assert job.status() is State.READY


def test_a_job_nobody_has_is_not_found(app: Penstock, task: Task[[int], int]) -> None:
    with pytest.raises(NotFound):
        task.job(999).status()
