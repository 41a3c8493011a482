"""Handlers in processes: they cannot hurt the worker, and their errors are recorded."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import Draft, Penstock
from penstock.errors import JobFailed
from penstock.model.message import State
from tests.app.scenes import record, until, until_true, working
from tests.worker import shop

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Penstock]:
    app = shop.app
    app.use(f"sqlite:///{tmp_path}/queue.db")
    yield app
    await app.aclose()


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_task_runs_in_a_process_that_is_kept_for_the_next(app: Penstock) -> None:
    async with working(app, concurrency=1):
        assert await (await shop.double.aenqueue(4)).aresult(60) == 8
        assert await (await shop.add.aenqueue(4, b=2)).aresult(60) == 6
        assert await (await shop.renamed.aenqueue()).aresult(60) == "found"
        first = await (await shop.where.aenqueue()).aresult(60)
        assert first != os.getpid()
        assert await (await shop.where.aenqueue()).aresult(60) == first
    await until(lambda: not alive(first))


async def test_steps_in_a_process_are_refused_at_their_first_call(app: Penstock) -> None:
    async with working(app, concurrency=1):
        job = await shop.suspend.aenqueue()
        with pytest.raises(JobFailed):
            await job.aresult(60)
    found = await record(app, job.id)
    assert (found.state, found.deliveries) == (State.DEAD, 1)
    assert "durable steps need a worker" in (found.error or "")


async def test_an_error_in_a_process_is_judged_by_the_tasks_own_rules(app: Penstock) -> None:
    async with working(app, concurrency=1) as worker:
        ways = ("refused", "retry", "reject", "error", "sys.exit", "unstorable")
        jobs = [await shop.fail.options(max_attempts=1).aenqueue(way) for way in ways]
        jobs.append(await shop.fail.options(max_attempts=1).aenqueue("well"))
        await until(lambda: worker.settled + worker.completed == 7)
    found = [await record(app, job.id) for job in jobs]
    assert [(each.state, each.reason, each.error) for each in found] == [
        (State.DEAD, "rejected", "Refused: by its own class"),
        (State.DEAD, "retries_exhausted", "Retry: later"),
        (State.DEAD, "rejected", "Reject: never"),
        (State.DEAD, "retries_exhausted", "ValueError: boom"),
        (State.DEAD, "retries_exhausted", "SystemExit: 4"),
        (State.DEAD, "retries_exhausted", "Unstorable: holds an object"),
        (State.COMPLETED, None, None),
    ]


@pytest.mark.parametrize(("how", "code"), [("exit", "3"), ("segfault", "-11")])
async def test_a_process_that_dies_is_a_recorded_error_and_another_takes_its_place(
    app: Penstock, how: str, code: str
) -> None:
    async with working(app, concurrency=1):
        job = await shop.fail.options(max_attempts=1).aenqueue(how)
        with pytest.raises(JobFailed, match=f"ProcessDied: its process exited with {code}"):
            await job.aresult(60)
        assert await (await shop.double.aenqueue(4)).aresult(60) == 8


async def test_a_run_past_its_timeout_is_killed_with_what_it_started(
    app: Penstock, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    async with working(app, concurrency=1):
        # Started before: the timeout is for the run, not for an import.
        await (await shop.where.aenqueue()).aresult(60)
        job = await shop.hang.options(timeout=0.5, max_attempts=1).aenqueue(str(marker))
        with pytest.raises(JobFailed, match="TimedOut"):
            await job.aresult(60)
        pids = [int(word) for word in marker.read_text().split()]
        await until(lambda: not any(map(alive, pids)))
        assert await (await shop.double.aenqueue(4)).aresult(60) == 8


async def test_a_stop_kills_what_does_not_end_and_gives_it_back(
    app: Penstock, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    async with working(app, concurrency=1, grace=0.1):
        job = await shop.hang.aenqueue(str(marker))
        await until(lambda: marker.exists() and bool(marker.read_text()))
    pids = [int(word) for word in marker.read_text().split()]
    await until(lambda: not any(map(alive, pids)))
    found = await record(app, job.id)
    assert (found.state, found.attempts, found.deliveries) == (State.READY, 0, 0)


async def test_progress_and_cancel_pass_between_worker_and_process(app: Penstock) -> None:
    async with working(app, concurrency=1, lease=0.5):
        job = await shop.report.aenqueue()

        async def shown() -> bool:
            return (await record(app, job.id)).percent is not None

        await until_true(shown)
        found = await record(app, job.id)
        assert (found.percent, found.note) == (25.0, "a quarter")
        await job.acancel()
        with pytest.raises(JobFailed, match="cancelled"):
            await job.aresult(60)


async def test_a_result_that_cannot_be_stored_is_a_recorded_error(app: Penstock) -> None:
    async with working(app, concurrency=1):
        job = await shop.weird.aenqueue()
        with pytest.raises(JobFailed, match=r"CodecError: .*function cannot be stored"):
            await job.aresult(60)


async def test_a_task_in_a_process_enqueues_where_its_worker_works(app: Penstock) -> None:
    """Not where the code says, if the worker was told otherwise."""
    async with working(app, concurrency=1):
        id = await (await shop.enqueue_more.aenqueue()).aresult(60)
        assert await shop.double.job(id).aresult(60) == 10


async def test_a_message_acked_first_runs_in_a_process_once(app: Penstock) -> None:
    async with working(app, concurrency=1) as worker:
        job = await shop.once.aenqueue()
        await until(lambda: worker.finished == 1)
        assert await job.astatus() is State.COMPLETED
        await until(lambda: not worker.busy)
    assert (worker.completed, worker.settled, worker.lost) == (1, 0, 0)


async def test_a_subscriber_in_a_process_settles_by_hand(app: Penstock) -> None:
    ids = [(await app.apublish(Draft(queue="orders", body=b"%d" % n))).id for n in (1, 2, 3)]
    async with working(app, "orders", concurrency=1) as worker:
        await until(lambda: worker.completed + worker.settled == 3)
    found = [await record(app, id) for id in ids]
    assert [(each.state, each.error) for each in found] == [
        (State.COMPLETED, None),
        (State.SCHEDULED, "by hand"),
        (State.DEAD, "the handler ended without ack, nack or reject"),
    ]


async def test_a_run_in_a_process_attaches_files(app: Penstock, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a file")
    async with working(app, concurrency=1):
        job = await shop.attach.aenqueue(str(tmp_path / "file"))
        assert await job.aresult(60) == "NotADirectoryError"
    assert await job.aartifact("a.txt") == b"bytes"
    assert await job.aartifact("b.txt") == b"a file"
    assert [each.name for each in await job.aartifacts()] == ["a.txt", "b.txt"]
