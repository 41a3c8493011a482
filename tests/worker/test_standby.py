"""A handler that holds the GIL keeps its lease; a worker that was stopped or killed does not."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.worker import standby
from penstock.worker.standby_process import AREA_SIZE, MEMORY_SIZE, LeaseMemory
from tests.app.scenes import counters, until, until_true, working
from tests.extent import LONG
from tests.http.served import served
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.worker import program
from tests.worker.conftest import Start
from tests.worker.test_crash import lines
from tests.worker.test_processes import alive

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not standby.is_supported(), reason="there is no standby process here"),
]
LEASE = 8.0
HOLD = 24
SETTLED_S = 0.5
LONG_HOLD = 100
MEMORY_LIMIT_KB = 20_000
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture(
    params=[
        "sqlite",
        "postgres",
        "http",
        pytest.param("mariadb", marks=LONG),
        pytest.param("redis", marks=LONG),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    file = f"sqlite:///{tmp_path}/queue.db"
    if request.param == "sqlite":
        yield file
    elif request.param == "http":
        with served(file, tmp_path) as service:
            yield f"http://127.0.0.1:{service.port}"
    else:
        server: Postgres | MariaDB | Redis = request.getfixturevalue(f"{request.param}_server")
        with server.database() as url:
            yield url


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    app = program.app
    app.use(url)
    yield app
    await app.aclose()


def standbys_of(pid: int) -> list[int]:
    """The standby processes among the worker's children."""
    found = [each for task in Path(f"/proc/{pid}/task").iterdir() for each in children_of(task)]
    return [each for each in found if b"standby_process" in command_of(each)]


def children_of(task: Path) -> list[int]:
    return [int(each) for each in (task / "children").read_text().split()]


def command_of(pid: int) -> bytes:
    """Returns nothing for a process that has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def memory_of(pid: int) -> int:
    """Resident, in KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def cpu_ticks_of(pid: int) -> int:
    """How long it has run, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def standby_of(pid: int) -> int:
    await until(lambda: len(standbys_of(pid)) == 1)
    return standbys_of(pid)[0]


async def warm_up(worker: int, folder: Path) -> None:
    """Until its standby process has imported the driver: with so short a lease, a busy machine
    would have no time for it."""
    while not standbys_of(worker):
        await (await program.count.aenqueue(str(folder / "warm"), 1)).aresult(60)
    beside = await standby_of(worker)
    await until(lambda: memory_of(beside) > MEMORY_LIMIT_KB)
    seen = [-1]

    async def is_at_rest() -> bool:
        await asyncio.sleep(SETTLED_S)
        seen.append(cpu_ticks_of(beside))
        return seen[-1] == seen[-2]

    await until_true(is_at_rest)


async def test_a_handler_that_holds_the_gil_for_many_leases_runs_once(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs, log = tmp_path / "runs", tmp_path / "log"
    for worker in (start(lease=LEASE), start(lease=LEASE)):
        await warm_up(worker.pid, tmp_path)
    job = await program.hold_gil.aenqueue(str(runs), HOLD)
    assert await job.aresult(90) == int(lines(runs)[0])
    assert len(lines(runs)) == 1
    assert await counters(app, job.id) == ("completed", 1, 1)
    await until(lambda: "gil_held" in log.read_text())
    assert "hold_gil" in log.read_text()
    assert "event_loop_stalled" not in log.read_text()
    assert 'executor="process"' in log.read_text()


@on_sqlite
async def test_what_waits_behind_it_is_kept_as_well(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    first = await program.hold_gil.aenqueue(str(runs), HOLD)
    second = await program.count.aenqueue(str(runs), 7)
    start(lease=LEASE, concurrency=1)
    await until(lambda: len(lines(runs)) >= 1)
    start(lease=LEASE, concurrency=1)
    for job in (first, second):
        await job.aresult(90)
        assert await counters(app, job.id) == ("completed", 1, 1)


@on_sqlite
async def test_the_lease_of_a_killed_worker_runs_out_and_its_standby_goes(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    worker = start(lease=LEASE)
    job = await program.hold_gil.aenqueue(str(runs), LONG_HOLD)
    await until(lambda: len(lines(runs)) == 1)
    beside = await standby_of(worker.pid)
    worker.kill()
    await until(lambda: not alive(beside))
    start(lease=LEASE)
    await until(lambda: len(lines(runs)) == 2)
    assert (await counters(app, job.id))[2] == 2


@on_sqlite
async def test_a_stopped_worker_loses_its_lease(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs, go_on = tmp_path / "runs", tmp_path / "go"
    start(lease=LEASE), start(lease=LEASE)
    job = await program.wait.aenqueue(str(runs), str(go_on))
    await until(lambda: len(lines(runs)) == 1)
    first = int(lines(runs)[0])
    os.kill(first, signal.SIGSTOP)
    await until(lambda: len(lines(runs)) == 2)
    go_on.touch()
    assert await job.aresult(60) == int(lines(runs)[1]) != first


@on_sqlite
async def test_a_run_past_its_timeout_and_grace_is_not_kept(
    app: Penstock, start: Start, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    start(lease=LEASE, grace=1.0), start(lease=LEASE, grace=1.0)
    await program.hold_gil_with_timeout.aenqueue(str(runs), LONG_HOLD)
    await until(lambda: len(lines(runs)) == 2)


async def test_a_standby_that_dies_is_started_again_and_logged_once(
    filed: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "FIRST_RESTART_S", 0.01)
    go_on = asyncio.Event()

    @filed.task
    async def work() -> None:
        await go_on.wait()

    with capture_logs() as logs:
        async with working(filed, lease=LEASE) as worker:
            job = await work.aenqueue()
            killed = set[int]()
            for _ in range(3):
                await until(lambda: bool(set(standbys_of(os.getpid())) - killed))
                (pid,) = set(standbys_of(os.getpid())) - killed
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            go_on.set()
            await job.aresult(30)
            assert worker.lost == 0
    assert [entry["event"] for entry in logs].count("standby_heartbeat_exited") == 1


async def test_a_coroutine_that_blocks_the_loop_is_named(
    filed: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "LOOP_STALL_S", 0.1)

    @filed.task(name="block")
    async def block() -> None:
        threading.Event().wait(1.5)

    with capture_logs() as logs:
        async with working(filed, lease=LEASE):
            await (await block.aenqueue()).aresult(30)
            await until(lambda: "event_loop_stalled" in [entry["event"] for entry in logs])
    (stall,) = [entry for entry in logs if entry["event"] == "event_loop_stalled"]
    assert stall["tasks"] == "block"
    assert stall["seconds"] >= 0.1


async def test_a_standby_for_short_leases_is_ready_before_the_first_claim(
    filed: Penstock,
) -> None:
    @filed.task
    async def work() -> None: ...

    async with working(filed, lease=LEASE):
        pid = await standby_of(os.getpid())
        await until(lambda: memory_of(pid) > MEMORY_LIMIT_KB)


async def test_a_standby_is_small_and_goes_with_its_worker(filed: Penstock) -> None:
    @filed.task
    async def work() -> None: ...

    async with working(filed):
        assert standbys_of(os.getpid()) == []
        await (await work.aenqueue()).aresult(30)
        pid = await standby_of(os.getpid())
        assert memory_of(pid) < MEMORY_LIMIT_KB
    assert not alive(pid)


def test_leases_are_added_and_replaced_in_shared_memory() -> None:
    file = os.memfd_create("leases")
    os.ftruncate(file, MEMORY_SIZE)
    written, seen = LeaseMemory(file), LeaseMemory(file)
    os.close(file)
    written.append(b"1\n")
    written.append(b"2\n")
    first, records = seen.read()
    assert records == [b"1", b"2"]
    written.replace(b"3\n")
    written.append(b"4\n")
    assert seen.read()[1] == [b"3", b"4"]
    assert seen.read()[0] != first
    assert not written.append(b"x" * (AREA_SIZE - 3))
    written.replace(b"")
    assert seen.read()[1] == []
