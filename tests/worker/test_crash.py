"""Workers as processes: they are killed, they are asked to stop, they share the work."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.model.message import State
from tests.app.scenes import counters, record, until, until_true
from tests.worker import program
from tests.worker.conftest import Start
from tests.worker.test_processes import alive

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = program.app
    app.use(url)
    yield app
    await app.aclose()


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def stop(worker: "subprocess.Popen[bytes]") -> int:
    await until(lambda: worker.poll() is not None)
    return worker.returncode


async def test_a_job_of_a_killed_worker_runs_again_on_another(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    """Within a lease and a few seconds, and nobody has to do anything."""
    runs, go_on = tmp_path / "runs", tmp_path / "go"
    start(), start()
    job = await program.wait.aenqueue(str(runs), str(go_on))
    await until(lambda: len(lines(runs)) == 1)
    os.kill(int(lines(runs)[0]), signal.SIGKILL)
    await until(lambda: len(lines(runs)) == 2)
    go_on.touch()
    assert await job.aresult(30) == int(lines(runs)[1])
    assert lines(runs)[0] != lines(runs)[1]
    assert await counters(app, job.id) == ("completed", 1, 2)


async def test_a_signal_lets_the_running_finish_and_gives_back_the_rest(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs, go_on = tmp_path / "runs", tmp_path / "go"
    worker = start(concurrency=1, lease=5.0)
    jobs = [await program.wait.aenqueue(str(runs), str(go_on)) for _ in range(4)]

    async def claimed() -> bool:
        return (await record(app, jobs[1].id)).state is State.CLAIMED

    await until_true(claimed)
    worker.send_signal(signal.SIGTERM)

    async def released() -> bool:
        return (await record(app, jobs[1].id)).state is State.READY

    await until_true(released)
    assert worker.poll() is None
    go_on.touch()
    assert await stop(worker) == 0
    assert await counters(app, jobs[0].id) == ("completed", 1, 1)
    assert {await counters(app, job.id) for job in jobs[1:]} == {("ready", 0, 0)}
    assert len(lines(runs)) == 1


async def test_a_grace_time_that_passes_burns_no_attempt(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    worker = start(lease=5.0, grace=0.1)
    job = await program.wait.aenqueue(str(runs), str(tmp_path / "never"))
    await until(lambda: len(lines(runs)) == 1)
    worker.send_signal(signal.SIGTERM)
    assert await stop(worker) == 0
    assert await counters(app, job.id) == ("ready", 0, 0)


async def test_a_second_signal_is_a_crash_and_the_lease_tells(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs, go_on = tmp_path / "runs", tmp_path / "go"
    worker = start(concurrency=1)
    job = await program.wait.aenqueue(str(runs), str(go_on))
    await until(lambda: len(lines(runs)) == 1)
    worker.send_signal(signal.SIGTERM)
    await until(lambda: "worker_stopping" in (tmp_path / "log").read_text())
    worker.send_signal(signal.SIGTERM)
    assert await stop(worker) == 128 + signal.SIGTERM
    assert await job.astatus() is State.CLAIMED
    go_on.touch()
    start()
    assert await job.aresult(30) != worker.pid


async def test_a_message_that_kills_its_worker_stops_and_its_neighbours_do_not_suffer(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs, kills = tmp_path / "runs", tmp_path / "kills"
    poison = await program.die.options(max_attempts=1, max_deliveries=2).aenqueue(str(kills))
    good = await app.aenqueue_many(program.count.call(str(runs), n) for n in range(100))
    for deaths in (1, 2):
        worker = start(lease=0.5)
        await stop(worker)
        assert lines(kills) == [str(number) for number in range(1, deaths + 1)]
    start(lease=0.5)
    await until(lambda: len(set(lines(runs))) == 100)

    async def ended() -> bool:
        states = {(await record(app, job.id)).state for job in good}
        return states == {State.COMPLETED} and await poison.astatus() is State.DEAD

    await until_true(ended)
    assert (await record(app, poison.id)).reason == "max_deliveries"
    assert lines(kills) == ["1", "2"]


@pytest.mark.parametrize("neighbour", ["count", "attach"])
async def test_the_end_of_a_neighbour_is_not_lost_with_the_worker(
    app: Penstock, start: Start, tmp_path: Path, neighbour: str
) -> None:
    """Redelivered, it runs just before the killer: its end is stored before the killer begins."""
    if neighbour == "count":
        quick = await program.count.aenqueue(str(tmp_path / "runs"), 1)
    else:
        quick = await program.attach.aenqueue()
    await program.die.aenqueue(str(tmp_path / "kills"))
    for _ in range(2):
        await stop(start())
    state, attempts, deliveries = await counters(app, quick.id)
    assert (state, attempts) == ("completed", 1)
    assert deliveries <= 2


async def test_neighbours_of_a_killer_are_done_within_three_leases(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    """Each start of a worker finds what the last one held when that lease has ended."""
    await program.die.aenqueue(str(tmp_path / "kills"))
    jobs = await app.aenqueue_many(
        program.count.call(str(tmp_path / "runs"), number) for number in range(40)
    )

    async def done() -> bool:
        return {(await record(app, job.id)).state for job in jobs} == {State.COMPLETED}

    starts = 0
    while not await done():
        starts += 1
        await wait_until_ended(done, start())
    deliveries = [(await record(app, job.id)).deliveries for job in jobs]
    assert (starts <= 4, max(deliveries) <= 3) == (True, True), (starts, deliveries)


async def wait_until_ended(
    done: Callable[[], Awaitable[bool]], worker: "subprocess.Popen[bytes]"
) -> None:
    async def over() -> bool:
        return worker.poll() is not None or await done()

    await until_true(over)


async def test_the_processes_of_a_killed_worker_go_with_it(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    worker = start(lease=30.0)
    await program.wait_in_process.aenqueue(str(runs))
    await until(lambda: len(lines(runs)) == 1)
    child = int(lines(runs)[0])
    assert alive(child)
    worker.kill()
    await until(lambda: not alive(child))


async def test_a_task_runs_in_a_process_where_temporary_files_have_long_names(
    app: Penstock, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the address of a socket may be."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    start()
    job = await program.where_in_process.aenqueue()
    assert await job.aresult(60) > 0
