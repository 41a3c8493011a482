"""A worker that stops burns nothing: it finishes, writes, and gives back the rest."""

import asyncio
import threading
from typing import Any

import pytest

from penstock import Context, Message, Penstock
from penstock.errors import StoreBusy
from penstock.model.message import Draft, State
from penstock.testing.faults import Faults
from penstock.worker.options import WorkerOptions
from tests.app.scenes import Arranged, claim_for_all, counters, record, until, working

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_running_ones_finish_and_unstarted_ones_go_back_with_their_delivery(
    app: Penstock, kind: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def on_loop(number: int) -> int:
        begun.set()
        await until(go_on.is_set)
        return number

    def in_thread(number: int) -> int:
        begun.set()
        go_on.wait(30)
        return number

    task: Any = app.task(on_loop if kind == "async" else in_thread)
    claim_for_all(app, "default")
    jobs = await app.aenqueue_many(task.call(number) for number in range(6))
    async with working(app, concurrency=1, fetch_batch_size=10) as worker:
        await until(lambda: begun.is_set() and len(worker.held) > 1)
        asyncio.get_running_loop().call_later(0.1, go_on.set)
    assert await jobs[0].aresult(1) == 0
    assert await counters(app, jobs[0].id) == ("completed", 1, 1)
    assert [await counters(app, job.id) for job in jobs[1:]] == [("ready", 0, 0)] * 5
    assert (worker.completed, worker.lost, worker.held) == (1, 0, {})


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_does_not_end_in_the_grace_time_is_given_back_and_the_rest_is_written(
    app: Penstock, kind: str
) -> None:
    go_on = threading.Event()

    async def on_loop(number: int) -> int:
        if number == 0:
            await asyncio.sleep(100)
        return number

    def in_thread(number: int) -> int:
        if number == 0:
            go_on.wait(60)
        return number

    task: Any = app.task(on_loop if kind == "async" else in_thread)
    stuck, fine = await app.aenqueue_many([task.call(0), task.call(1)])
    worker = await app.worker((), WorkerOptions(concurrency=2, grace=0.1))
    await worker.start()
    await until(lambda: worker.finished == 1)
    await worker.stop()
    go_on.set()
    assert await fine.aresult(1) == 1
    assert await counters(app, stuck.id) == ("ready", 0, 0)


async def test_what_finished_is_written_though_the_store_is_away_when_the_grace_time_passes() -> (
    None
):
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work(number: int) -> int:
        return number

    jobs = await app.aenqueue_many(work.call(number) for number in range(5))
    for call in range(1, 4):
        faults.before("complete", StoreBusy("locked"), call=call)
    worker = await app.worker((), WorkerOptions(grace=0.01))
    await worker.start()
    await until(lambda: worker.finished == 5)
    await worker.stop()
    assert [await job.aresult(1) for job in jobs] == list(range(5))
    await app.aclose()


async def test_a_claim_under_way_is_not_lost_by_a_stop(filed: Penstock) -> None:
    """What it hands out after the stop began goes back."""

    @filed.task
    async def work() -> None:
        await asyncio.sleep(100)

    for _ in range(10):
        job = await work.aenqueue()
        worker = await filed.worker((), WorkerOptions(concurrency=1, grace=0.01))
        await worker.start()
        # The claim goes to the store's thread in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)
        await worker.stop()
        assert await counters(filed, job.id) == ("ready", 0, 0)
        await job.acancel()


async def test_a_worker_that_waits_for_work_stops_at_once(app: Penstock) -> None:
    @app.task
    async def work() -> None: ...

    async with working(app, max_interval=30) as worker:
        await (await work.aenqueue()).aresult(30)
        await until(lambda: all(fetch.resting for fetch in worker.fetchers))
    assert worker.completed == 1


async def test_a_batch_that_is_cut_off_goes_back_except_what_it_settled(app: Penstock) -> None:
    begun = asyncio.Event()

    @app.subscriber("orders", batch=10)
    async def on_orders(messages: list[Message[int]]) -> None:
        messages[0].ack()
        messages[1].reject("no")
        begun.set()
        await asyncio.sleep(100)

    ids = [(await app.apublish(Draft(queue="orders", body=b"1"))).id for _ in range(4)]
    async with working(app, grace=0.1):
        await begun.wait()
    assert [await counters(app, id) for id in ids] == [
        ("completed", 1, 1),
        ("dead", 1, 1),
        ("ready", 0, 0),
        ("ready", 0, 0),
    ]


async def test_a_run_that_is_cut_off_after_its_ack_by_hand_is_completed(app: Penstock) -> None:
    begun = asyncio.Event()

    @app.task
    async def work(context: Context) -> None:
        context.ack()
        begun.set()
        await asyncio.sleep(100)

    async with working(app, grace=0.1):
        job = await work.aenqueue()
        await begun.wait()
    assert await job.astatus() is State.COMPLETED


async def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_worker(
    app: Penstock,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    async with working(app, grace=0.1):
        job = await stubborn.aenqueue()
        await begun.wait()
    assert await counters(app, job.id) == ("ready", 0, 0)
    go_on.set()
    await asyncio.sleep(0)


async def test_suspects_that_wait_for_their_turn_go_back(app: Penstock) -> None:
    """They were claimed, and have not begun."""
    go_on, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        begun.set()
        await go_on.wait()

    jobs = await app.aenqueue_many(work.call() for _ in range(3))
    broker = await app.broker()
    taken = await broker.claim("default", consumer="gone", limit=3, lease=0.1)
    assert len(taken.messages) == 3
    async with working(app) as worker:
        await until(lambda: begun.is_set() and len(worker.held) == 3)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    states = sorted([await counters(app, job.id) for job in jobs])
    assert states == [("completed", 1, 2), ("ready", 0, 1), ("ready", 0, 1)]


async def test_parked_and_finished_are_not_told_twice(app: Penstock) -> None:
    @app.task
    async def work() -> None: ...

    unknown = await app.apublish(Draft(type="nobody.knows"))
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    found = await record(app, unknown.id)
    assert (found.state, found.reason, found.deliveries) == (State.SCHEDULED, "UNKNOWN_TASK", 0)
