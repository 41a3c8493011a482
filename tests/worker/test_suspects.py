"""A message that may have ended a worker runs alone; a retry that came back does not."""

import asyncio
from collections.abc import Awaitable
from functools import partial

import pytest
from msgspec.structs import replace

from penstock import Context, Penstock, Retry
from penstock.errors import StoreBusy
from penstock.model.message import Leased, State
from penstock.model.settings import get_preset
from penstock.testing.faults import Faults
from penstock.worker.local_context import make_local_context
from penstock.worker.quarantine import may_be_killer
from tests.app.scenes import Arranged, counters, record, until, until_true, working

pytestmark = pytest.mark.anyio


def make_delivered(deliveries: int, attempts: int) -> Leased:
    return replace(
        make_local_context("task", "default").delivery, deliveries=deliveries, attempts=attempts
    )


@pytest.mark.parametrize(
    ("deliveries", "attempts", "name", "alone"),
    [
        (2, 0, "default", True),
        (2, 1, "default", False),
        (4, 3, "default", False),
        (4, 2, "default", True),
        (2, 1, "relay", True),
        (2, 1, "codeq", True),
        (2, 1, "queuectl", False),
    ],
)
def test_a_delivery_that_did_not_come_back_makes_a_killer(
    deliveries: int, attempts: int, name: str, alone: bool
) -> None:
    """Where a lease that runs out counts as an attempt, nobody can tell the two apart."""
    assert may_be_killer(make_delivered(deliveries, attempts), get_preset(name)) is alone


async def claim_and_abandon(app: Penstock, count: int) -> None:
    """A worker took that many, and was never heard of again."""
    broker = await app.broker()
    taken = await broker.claim("default", consumer="gone", limit=count, lease=0.1)
    assert len(taken.messages) == count


async def test_suspects_run_one_at_a_time_beside_others(app: Penstock) -> None:
    running: set[int] = set()
    most, suspects_together = 0, 0

    @app.task
    async def work(context: Context) -> None:
        nonlocal most, suspects_together
        running.add(context.delivery.deliveries * 1_000 + context.id)
        suspects = [each for each in running if each > 2_000]
        most, suspects_together = max(most, len(running)), max(suspects_together, len(suspects))
        await asyncio.sleep(0.02)
        running.discard(context.delivery.deliveries * 1_000 + context.id)

    jobs = await app.aenqueue_many(work.call() for _ in range(4))
    await claim_and_abandon(app, 4)
    async with working(app) as worker:
        more = await app.aenqueue_many(work.call() for _ in range(8))
        await until(lambda: worker.completed == 12)
    assert suspects_together == 1
    assert most > 1
    assert {await counters(app, job.id) for job in jobs} == {("completed", 1, 2)}
    assert {await counters(app, job.id) for job in more} == {("completed", 1, 1)}


async def test_a_suspect_begins_when_the_end_of_the_last_one_is_stored() -> None:
    """A store that is away for a moment does not change that."""
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)
    faults.before("complete", StoreBusy("locked"))
    assert await states_of_the_last(app, attach=False) == [State.COMPLETED] * 3
    await app.aclose()


async def test_a_suspect_begins_when_the_files_of_the_last_one_are_stored(filed: Penstock) -> None:
    assert await states_of_the_last(filed, attach=True) == [State.COMPLETED] * 3


async def states_of_the_last(app: Penstock, *, attach: bool) -> list[State]:
    """Runs three suspects; the states of those before it, as each of them begins."""
    begun: list[int] = []
    found: list[State] = []

    @app.task
    async def work(context: Context) -> None:
        found.extend([(await record(app, id)).state for id in begun])
        begun.append(context.id)
        if attach:
            await context.aattach("report", b"made")

    await app.aenqueue_many(work.call() for _ in range(3))
    await claim_and_abandon(app, 3)
    async with working(app) as worker:
        await until(lambda: worker.completed == 3)
    return found


async def test_a_suspect_that_was_acked_first_still_runs_alone(app: Penstock) -> None:
    running, together = 0, 0

    @app.task(policy="ack_first")
    async def work() -> None:
        nonlocal running, together
        running += 1
        together = max(together, running)
        await asyncio.sleep(0.02)
        running -= 1

    await app.aenqueue_many(work.call() for _ in range(3))
    await claim_and_abandon(app, 3)
    async with working(app) as worker:
        await until(lambda: worker.finished == 3)
    assert together == 1


async def test_the_suspect_with_the_fewest_deliveries_runs_first(app: Penstock) -> None:
    runs: list[int] = []

    @app.task
    async def work(context: Context) -> None:
        runs.append(context.id)

    often = await work.aenqueue()
    await wait_until_given_back(app, often.id, claim_and_abandon(app, 1))
    once = await app.aenqueue_many(work.call() for _ in range(2))
    await wait_until_given_back(app, once[-1].id, claim_and_abandon(app, 3))
    async with working(app) as worker:
        await until(lambda: worker.completed == 3)
    assert runs == [once[0].id, once[1].id, often.id]


async def wait_until_given_back(app: Penstock, id: int, taken: Awaitable[None]) -> None:
    """Waits until the lease of a worker that is gone has ended."""
    await taken
    async with app.agents(await app.broker()):
        await until_true(partial(is_ready, app, id))


async def is_ready(app: Penstock, id: int) -> bool:
    return (await record(app, id)).state is State.READY


async def test_retries_that_came_back_run_together(app: Penstock) -> None:
    """Ten jobs that failed once wait for each other: alone, they would for ever."""
    together = asyncio.Event()
    waiting: set[int] = set()

    @app.task
    async def work(context: Context) -> None:
        if context.attempt == 1:
            raise Retry(delay=0)
        waiting.add(context.id)
        if len(waiting) == 5:
            together.set()
        await together.wait()

    async with working(app, concurrency=5) as worker:
        await app.aenqueue_many(work.call() for _ in range(5))
        await until(lambda: worker.completed == 5)


async def test_a_message_delivered_too_often_is_not_run(app: Penstock) -> None:
    """The limit was lowered after its first delivery had not come back."""
    runs: list[int] = []

    @app.task
    async def work(context: Context) -> None:
        runs.append(context.id)

    job = await work.aenqueue()
    broker = await app.broker()
    await claim_and_abandon(app, 1)

    async def given_back() -> bool:
        return (await record(app, job.id)).state is State.READY

    async with app.agents(broker):
        await until_true(given_back)
    await broker.admin.set_queue("default", max_deliveries=1)
    async with working(app) as worker:
        await until(lambda: worker.settled == 1)
    found = await record(app, job.id)
    assert (found.state, found.reason, runs) == (State.DEAD, "max_deliveries", [])


async def test_a_store_that_is_away_delays_a_suspect_and_loses_nothing() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work() -> str:
        return "done"

    jobs = await app.aenqueue_many(work.call() for _ in range(2))
    await claim_and_abandon(app, 2)
    faults.before("mark", StoreBusy("locked"))
    async with working(app):
        assert [await job.aresult(30) for job in jobs] == ["done"] * 2
    await app.aclose()


async def test_a_retry_that_was_lost_before_it_began_makes_room_for_another() -> None:
    faults = Faults()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, faults=faults)

    @app.task
    async def work(context: Context, fails: bool) -> None:
        if fails:
            raise Retry(delay=0)

    for call in (1, 2, 3):
        faults.before("mark", StoreBusy("locked"), call=call)
    async with working(app, concurrency=1):
        lost = await work.aenqueue(True)
        await until(lambda: faults.counts["mark"] > 0)
        await lost.acancel(force=True)
        await (await work.aenqueue(False)).aresult(30)
    assert await lost.astatus() is State.CANCELLED
    await app.aclose()


async def test_a_suspect_that_was_lost_while_it_waited_is_not_run(app: Penstock) -> None:
    go_on = asyncio.Event()
    runs: list[int] = []

    @app.task
    async def work(context: Context) -> None:
        runs.append(context.id)
        await go_on.wait()

    jobs = await app.aenqueue_many(work.call() for _ in range(3))
    await claim_and_abandon(app, 3)
    async with working(app) as worker:
        await until(lambda: len(runs) == 1 and len(worker.held) == 3)
        waiting = [job for job in jobs if job.id not in runs]
        await waiting[0].acancel(force=True)
        go_on.set()
        await until(lambda: worker.completed == 2)
        await until(lambda: not worker.held)
    assert waiting[0].id not in runs
    assert await waiting[0].astatus() is State.CANCELLED
