"""An app in a simulation: its tasks run in virtual time, without a worker."""

import pytest

from penstock import Context, Draft, Message, Penstock, Reject, Retry
from penstock.model.message import State
from penstock.testing.simulation import Simulation

pytestmark = pytest.mark.anyio


async def test_a_task_runs_and_its_result_can_be_read() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="sums")
    def add(a: int, b: int) -> int:
        return a + b

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await add.aenqueue(2, 3)
        await simulation.run_until_idle()
        assert await job.aresult() == 5


async def test_a_task_that_raises_runs_again_after_its_delay() -> None:
    app = Penstock("sqlite://")
    runs: list[int] = []

    @app.task(max_attempts=3)
    async def flaky(context: Context) -> None:
        runs.append(context.attempt)
        raise Retry(60)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await flaky.aenqueue()
        await simulation.advance("59s")
        assert runs == [1]
        await simulation.advance("5m")
        assert (runs, await job.astatus()) == ([1, 2, 3], State.DEAD)


async def test_a_cron_task_runs_once_a_tick() -> None:
    app = Penstock("sqlite://")
    runs: list[int] = []

    @app.task(cron="0 * * * *")
    def hourly(context: Context) -> None:
        runs.append(context.id)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        await simulation.advance("1d")
        assert len(runs) == 24


async def test_a_subscriber_settles_its_messages() -> None:
    app = Penstock("sqlite://")
    seen: list[int] = []

    @app.subscriber("orders", batch=10)
    async def on_orders(messages: list[Message[int]]) -> None:
        for message in messages:
            seen.append(message.body)
            if message.body < 0:
                message.reject("less than nothing")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        good = await app.apublish(Draft(queue="orders", body=b"1"))
        bad = await app.apublish(Draft(queue="orders", body=b"-1"))
        await simulation.run_until_idle()
        states = [(await simulation.broker.admin.get(each.id)).state for each in (good, bad)]
        assert (seen, states) == ([1, -1], [State.COMPLETED, State.DEAD])


async def test_an_unknown_task_is_parked() -> None:
    app = Penstock("sqlite://")

    @app.task()
    def known() -> None:
        raise Reject("never called")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        published = await app.apublish(Draft(type="unknown"))
        await simulation.run_until_idle()
        record = await simulation.broker.admin.get(published.id)
        assert (record.state, record.reason) == (State.SCHEDULED, "UNKNOWN_TASK")


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_handler_notices_an_event_that_it_has_dealt_with(blocking: bool) -> None:
    app = Penstock("sqlite://")
    found: list[bool] = []

    async def look(context: Context, order: int) -> None:
        found.append(await context.seen(f"order-{order}"))
        if len(found) == 1:
            raise Retry(1)

    def look_in_thread(context: Context, order: int) -> None:
        found.append(context.sync.seen(f"order-{order}"))
        if len(found) == 1:
            raise Retry(1)

    task = app.task(look_in_thread if blocking else look)
    async with Simulation.open() as simulation:
        await simulation.use(app)
        for order in (7, 7, 8):
            await task.aenqueue(order)
            await simulation.advance("5s")
    # The first run failed, so that its key was not recorded.
    assert found == [False, False, True, False]
