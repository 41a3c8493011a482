"""How much a worker claims ahead, and how often it asks."""

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock import Draft, Penstock
from penstock.errors import InvalidInput, StoreBusy
from penstock.model.message import State
from penstock.model.queue import QueueState
from penstock.testing.faults import Faults
from penstock.worker.options import WorkerOptions
from tests.app.scenes import Arranged, record, until, working

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_quick_handlers_get_bigger_claims_than_slow_ones(app: Penstock, kind: str) -> None:
    go_on = threading.Event()
    held: list[int] = []

    async def on_loop(slow: bool) -> None:
        held.append(len(worker.held))
        if slow:
            await until(go_on.is_set)

    def in_thread(slow: bool) -> None:
        held.append(len(worker.held))
        if slow:
            go_on.wait(30)

    task: Any = app.task(on_loop if kind == "async" else in_thread)
    await app.aenqueue_many(task.call(False) for _ in range(1_000))
    async with working(app, concurrency=4) as worker:
        await until(lambda: worker.completed == 1_000)
    assert max(held) > 24
    held.clear()
    await app.aenqueue_many(task.call(True) for _ in range(1_000))
    async with working(app, concurrency=4) as worker:
        await until(lambda: len(held) == 4 and worker.fetchers[0].resting)
        assert len(worker.held) <= 24
        worker.fetchers[0].stop()
        go_on.set()


async def test_an_empty_queue_is_asked_again_only_when_something_comes() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> None: ...

    async with working(app, max_interval=30) as worker:
        await until(lambda: worker.fetchers[0].resting)
        before = faults.counts["claim"]
        await (await work.aenqueue()).aresult(30)
        await until(lambda: worker.fetchers[0].resting)
        # One that got it; one more at most, that the wake-up of the same message asked for.
        assert faults.counts["claim"] - before in (1, 2)
    await app.aclose()


async def test_a_store_that_is_away_is_asked_again() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> str:
        return "done"

    job = await work.aenqueue()
    faults.before("claim", StoreBusy("locked"))
    with capture_logs() as logs:
        async with working(app):
            assert await job.aresult(30) == "done"
    assert [(each["event"], each["source"]) for each in logs if "source" in each] == [
        ("store_failing", "fetch"),
        ("store_recovered", "fetch"),
    ]
    await app.aclose()


async def test_a_paused_queue_is_not_served_until_it_is_resumed(app: Penstock) -> None:
    @app.task(queue="mail")
    async def work() -> str:
        return "done"

    async with working(app) as worker:
        await (await work.aenqueue()).aresult(30)
        await worker.broker.admin.set_state("mail", QueueState.PAUSED)
        await until(lambda: worker.fetchers[0].resting)
        job = await work.aenqueue()
        assert await job.astatus() is State.READY
        await worker.broker.admin.set_state("mail", QueueState.ACTIVE)
        assert await job.aresult(30) == "done"


async def test_unknown_tasks_are_parked_and_told_once(app: Penstock) -> None:
    @app.task
    async def work() -> None: ...

    ids = [(await app.apublish(Draft(type="nobody.knows"))).id for _ in range(3)]
    with capture_logs() as logs:
        async with working(app) as worker:
            await until(lambda: worker.settled == 3)
    found = [await record(app, id) for id in ids]
    assert {(each.state, each.reason, each.attempts, each.deliveries) for each in found} == {
        (State.SCHEDULED, "UNKNOWN_TASK", 0, 0)
    }
    assert [entry["type"] for entry in logs if entry["event"] == "unknown_task"] == ["nobody.knows"]


async def test_a_worker_of_some_queues_leaves_the_others_alone(app: Penstock) -> None:
    @app.task(queue="mail")
    async def mail() -> str:
        return "sent"

    @app.task(queue="reports")
    async def report() -> str:
        return "made"

    async with working(app, "mail"):
        other = await report.aenqueue()
        assert await (await mail.aenqueue()).aresult(30) == "sent"
        assert await other.astatus() is State.READY


async def test_a_worker_needs_a_handler(app: Penstock) -> None:
    with pytest.raises(InvalidInput, match="no handler for any queue"):
        await app.worker()

    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidInput, match="no handler for mail"):
        await app.worker(["mail"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"fetch_batch_size": 5_000}, "fetch_batch_size is 5000"),
        ({"overfetch_factor": 0.5}, "overfetch_factor is 0.5"),
        ({"max_interval": 0}, "max_interval is 0"),
        ({"grace": -1}, "grace is -1"),
        ({"lease": 0.01}, "lease is 0.01"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        WorkerOptions(**options)
