"""Apps and workers over HTTP: the same code, with the URL of a server."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock import Context, Message, Penstock, exponential
from penstock.errors import InvalidInput, JobCancelled, JobFailed
from penstock.model.message import Draft, State
from penstock.worker.options import WorkerOptions
from tests.cli.terminal import Terminal, until
from tests.http.served import Served

pytestmark = pytest.mark.anyio


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue()


@pytest.fixture
async def app(server: Served) -> AsyncIterator[Penstock]:
    made = Penstock(f"http://127.0.0.1:{server.port}")
    yield made
    await made.aclose()


@asynccontextmanager
async def working(app: Penstock, lease: float | None = None) -> AsyncIterator[None]:
    async with await app.worker(options=WorkerOptions(lease=lease)):
        yield


async def test_a_task_is_enqueued_run_and_its_result_comes_back(app: Penstock, queue: str) -> None:
    @app.task(queue=queue)
    async def add(a: int, b: int) -> int:
        return a + b

    async with working(app):
        jobs = [await add.aenqueue(number, 1) for number in range(20)]
        assert [await job.aresult(30) for job in jobs] == list(range(1, 21))
    record = await jobs[0].arecord()
    assert (record.state, record.attempts) == (State.COMPLETED, 1)


async def test_a_queue_is_made_when_it_is_first_used(app: Penstock, queue: str) -> None:
    app.queue(f"{queue}-new", preset="relay")

    @app.task(queue=f"{queue}-new")
    async def nothing() -> None: ...

    many = await app.aenqueue_many(nothing.call() for _ in range(5))
    assert [await job.astatus() for job in many] == [State.READY] * 5
    broker = await app.broker()
    assert (await broker.admin.queue(f"{queue}-new")).settings.max_attempts == 3


async def test_a_failure_is_tried_again_and_then_given_up(app: Penstock, queue: str) -> None:
    runs: list[int] = []

    @app.task(queue=queue, max_attempts=2, retry=exponential(0.01))
    async def fail(context: Context) -> None:
        runs.append(context.attempt)
        raise ValueError("boom")

    async with working(app):
        job = await fail.aenqueue()
        with pytest.raises(JobFailed, match="boom"):
            await job.aresult(30)
    assert len(runs) == 2


async def test_a_long_run_keeps_its_lease(app: Penstock, server: Served, queue: str) -> None:
    enough = asyncio.Event()

    @app.task(queue=queue)
    async def wait(context: Context) -> str:
        context.progress(1, total=2)
        await enough.wait()
        return "done"

    async with working(app, lease=1.0):
        job = await wait.aenqueue()
        seen: set[str] = set()

        def renewed() -> bool:
            seen.add(server.message(str(job.id)).get("lease_until", ""))
            return len(seen - {""}) >= 5

        await asyncio.to_thread(until, renewed)
        assert server.message(str(job.id))["percent"] == 50.0
        enough.set()
        assert await job.aresult(30) == "done"
    (step,) = (await job.arecord()).timeline
    assert step.state is State.COMPLETED


async def test_a_running_job_hears_of_its_cancel(app: Penstock, queue: str) -> None:
    started = asyncio.Event()

    @app.task(queue=queue)
    async def loop(context: Context) -> None:
        started.set()
        while True:
            await asyncio.sleep(0.01)
            context.raise_if_cancelled()

    async with working(app):
        job = await loop.aenqueue()
        await started.wait()
        await job.acancel()
        with pytest.raises(JobCancelled, match="cancelled"):
            await job.aresult(30)


async def test_a_stop_gives_back_what_was_not_begun(
    app: Penstock, server: Served, queue: str
) -> None:
    started, enough = asyncio.Event(), asyncio.Event()

    @app.task(queue=queue)
    async def wait() -> None:
        started.set()
        await enough.wait()

    jobs = [await wait.aenqueue() for _ in range(4)]
    worker = await app.worker(options=WorkerOptions(concurrency=1))
    await worker.start()
    await started.wait()
    stopping = asyncio.ensure_future(worker.stop())
    rest = [str(job.id) for job in jobs[1:]]
    await asyncio.to_thread(until, lambda: {server.state(id) for id in rest} == {"ready"})
    enough.set()
    await stopping
    states = [await job.astatus() for job in jobs]
    assert states == [State.COMPLETED, *[State.READY] * 3]
    record = await jobs[-1].arecord()
    assert (record.attempts, record.deliveries) == (0, 0)


async def test_an_unknown_task_is_parked(app: Penstock, server: Served, queue: str) -> None:
    @app.task(queue=queue)
    async def known() -> None: ...

    async with working(app):
        published = await app.apublish(Draft(queue=queue, type="unknown"))
        id = str(published.id)
        await asyncio.to_thread(until, lambda: server.state(id) == "scheduled")
    assert server.message(id)["timeline"][0]["reason"] == "UNKNOWN_TASK"


async def test_a_subscriber_gets_messages_of_anybody(
    app: Penstock, server: Served, queue: str
) -> None:
    seen: list[dict[str, int]] = []

    @app.subscriber(queue)
    async def take(message: Message[dict[str, int]]) -> None:
        seen.append(message.body)

    async with working(app):
        id = server.publish(queue, {"a": 1})
        await asyncio.to_thread(until, lambda: server.state(id) == "completed")
    assert seen == [{"a": 1}]


async def test_a_transaction_of_ones_own_cannot_be_joined(app: Penstock, queue: str) -> None:
    @app.task(queue=queue)
    async def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="over HTTP"):
        await nothing.options(connection=object()).aenqueue()


def test_without_a_loop_it_works_as_well(server: Served, queue: str) -> None:
    app = Penstock(f"http://127.0.0.1:{server.port}")

    @app.task(queue=queue)
    def nothing() -> None: ...

    job = nothing.enqueue()
    assert job.status() is State.READY
    job.cancel()
    assert job.status() is State.CANCELLED
    app.close()


SHOP = """
from penstock import Penstock

app = Penstock()

@app.task(queue="QUEUE")
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(tmp_path_factory.mktemp("shop"))


def test_the_worker_command_works_over_http_and_is_on_the_list(
    server: Served, queue: str, terminal: Terminal
) -> None:
    terminal.write("shop.py", SHOP.replace("QUEUE", queue))
    url = f"http://127.0.0.1:{server.port}"
    id = server.publish(queue, {"a": 1, "b": 2}, type="shop.add")
    words = ("worker", "start", "shop:app", "--url", url)
    with terminal.start(*words, PYTHONPATH=".") as worker:
        until(lambda: server.state(id) == "completed")
        (listed,) = server.get("/v1/workers").json["workers"]
        assert (listed["queues"], listed["state"]) == ([queue], "running")
        server.post(f"/v1/workers/{listed['id']}/stop")
        assert worker.wait(60) == 0
    assert server.get(f"/v1/messages/{id}/result").json == 3
    assert server.get("/v1/workers").json["workers"] == []
    said = terminal.run("worker", "start", "--url", url, code=1)
    assert "cannot run over HTTP" in said.err


def test_a_script_that_closes_nothing_ends_without_warnings(server: Served) -> None:
    script = (
        f"from penstock import Penstock; Penstock('http://127.0.0.1:{server.port}').publish(b'1')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stderr == ""
