"""Leases are renewed while their run lasts, and a lost one is noticed by everybody."""

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from penstock import Cancelled, Context, Penstock
from penstock.errors import StoreBusy
from penstock.model.message import State
from penstock.testing.faults import Faults
from penstock.worker import prefetch
from penstock.worker.worker import Worker
from tests.app.scenes import Arranged, claim_for_all, counters, record, sweeping, until, working

pytestmark = pytest.mark.anyio
# A machine that stands still for a moment does not lose it.
LEASE = 2.0


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_run_of_many_leases_is_not_lost(filed: Penstock, kind: str) -> None:
    seen: list[int] = []

    async def on_loop() -> None:
        broker = await filed.broker()
        while len(set(seen)) < 5:
            seen.append((await broker.admin.get(1)).lease_until or 0)
            await asyncio.sleep(0.02)

    def in_thread() -> None:
        broker = filed.run(filed.broker())
        while len(set(seen)) < 5:
            seen.append(filed.run(broker.admin.get(1)).lease_until or 0)

    filed.task(name="work")(on_loop if kind == "async" else in_thread)
    with sweeping(filed.url):
        async with working(filed, lease=LEASE) as worker:
            job = await filed.tasks["work"].aenqueue()
            await job.aresult(30)
            assert worker.lost == 0
    assert await counters(filed, job.id) == ("completed", 1, 1)
    assert sorted(set(seen)) == list(dict.fromkeys(seen))
    await asyncio.to_thread(filed.close)


async def test_a_message_with_a_lease_of_its_own_is_renewed_by_it(filed: Penstock) -> None:
    @filed.task
    async def work() -> None:
        broker, ends = await filed.broker(), set[int]()
        while len(ends) < 4:
            ends.add((await broker.admin.get(1)).lease_until or 0)
            await asyncio.sleep(0.02)

    with sweeping(filed.url):
        async with working(filed) as worker:
            job = await work.options(lease=LEASE).aenqueue()
            await job.aresult(30)
            assert worker.lost == 0


async def test_what_waits_for_its_turn_is_renewed_as_well(
    filed: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "FIRST_PAUSE_S", 60.0)
    claim_for_all(filed, "default")
    go_on = asyncio.Event()

    @filed.task
    async def work(number: int) -> None:
        await go_on.wait()

    with sweeping(filed.url):
        async with working(filed, lease=LEASE, concurrency=1, fetch_batch_size=10) as worker:
            jobs = await filed.aenqueue_many(work.call(number) for number in range(5))
            await until(lambda: len(worker.held) > 1)
            ends = {(await record(filed, jobs[1].id)).lease_until}
            while len(ends) < 4 and not worker.lost:
                ends.add((await record(filed, jobs[1].id)).lease_until)
                await asyncio.sleep(0.02)
            go_on.set()
            for job in jobs:
                await job.aresult(30)
            assert worker.lost == 0


async def test_a_changed_lease_of_the_queue_is_kept_to(filed: Penstock) -> None:
    """The next claim has the new length, and is renewed by it."""

    @filed.task(queue="mail")
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    with sweeping(filed.url):
        async with working(filed) as worker:
            await (await work.aenqueue(0)).aresult(30)
            await worker.broker.admin.set_queue("mail", lease=LEASE)
            await (await work.aenqueue(2.5 * LEASE)).aresult(30)
            assert worker.lost == 0


async def test_a_lost_lease_is_logged_counted_once_and_told_to_the_handler(
    app: Penstock,
) -> None:
    told: list[str] = []

    @app.task
    async def work(context: Context) -> None:
        await until(lambda: context.lost)
        try:
            context.heartbeat()
        except Cancelled as error:
            told.append(str(error))
            raise

    with capture_logs() as logs:
        async with working(app, lease=0.3) as worker:
            job = await work.aenqueue()
            await until(lambda: bool(worker.held))
            await job.acancel(force=True)
            await until(lambda: not worker.held)
            assert worker.lost == 1
    assert told == ["the lease was lost"]
    assert [entry["event"] for entry in logs].count("lease_lost") == 1
    assert await job.astatus() is State.CANCELLED


@pytest.mark.parametrize("force", [False, True])
async def test_a_cancel_is_noticed_long_before_the_next_renewal(app: Penstock, force: bool) -> None:
    told: list[tuple[bool, bool]] = []

    @app.task
    async def work(context: Context) -> None:
        await until(lambda: context.cancelled or context.lost)
        told.append((context.cancelled, context.lost))
        context.raise_if_cancelled()

    async with working(app, lease=3_000) as worker:
        job = await work.aenqueue()
        await until(lambda: bool(worker.held))
        await job.acancel(force=force)
        await until(lambda: not worker.held)
    assert told == [(not force, force)]
    assert await job.astatus() is State.CANCELLED


async def test_runs_that_are_soon_over_are_not_asked_after() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> None: ...

    async with working(app) as worker:
        await app.aenqueue_many(work.call() for _ in range(2_000))
        await until(lambda: worker.completed == 2_000)
    assert faults.counts["leases"] == 0
    await app.aclose()


async def test_a_lost_lease_is_noticed_at_the_end_if_not_before(app: Penstock) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return "too late"

    with capture_logs() as logs:
        async with working(app) as worker:
            job = await work.aenqueue()
            await until(lambda: bool(worker.held))
            await job.acancel(force=True)
            go_on.set()
            await until(lambda: not worker.held)
            assert (worker.lost, worker.completed) == (1, 0)
    assert [entry["event"] for entry in logs].count("lease_lost") == 1


async def test_a_heartbeat_that_fails_is_tried_again_in_time() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)
    app.connections.in_memory = True

    @app.task
    async def work() -> None:
        await until(lambda: faults.counts["extend"] >= 4)

    faults.before("extend", StoreBusy("locked"))
    faults.before("extend", ValueError("not even one of ours"), call=2)
    async with working(app, lease=3) as worker:
        await (await work.aenqueue()).aresult(30)
        assert worker.lost == 0
    await app.aclose()


async def test_leases_are_kept_until_the_drain_ends(filed: Penstock) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @filed.task
    async def work() -> None:
        begun.set()
        await go_on.wait()

    async def let_it_end(worker: Worker, id: int) -> None:
        """After a few renewals during the stop."""
        ends = set[int | None]()
        while len(ends) < 5 and not worker.lost:
            ends.add((await record(filed, id)).lease_until)
            await asyncio.sleep(0.02)
        go_on.set()

    with sweeping(filed.url):
        async with working(filed, lease=LEASE) as worker:
            job = await work.aenqueue()
            await begun.wait()
            ending = asyncio.create_task(let_it_end(worker, job.id))
        await ending
        assert (worker.lost, worker.completed) == (0, 1)
    assert await counters(filed, job.id) == ("completed", 1, 1)


async def test_nothing_of_the_heart_is_left_after_a_stop(filed: Penstock) -> None:
    @filed.task
    async def work() -> None: ...

    async with working(filed):
        await (await work.aenqueue()).aresult(30)
        assert "penstock-heart" in {thread.name for thread in threading.enumerate()}
    assert "penstock-heart" not in {thread.name for thread in threading.enumerate()}
