"""Cron tasks: declared in code, kept in the store, fired once a tick."""

import pytest

from penstock import Context, Penstock
from penstock.broker.local import Broker
from penstock.errors import InvalidInput
from penstock.model.queue import Missed, Schedule
from penstock.testing.simulation import ManualClock
from tests.app.scenes import Arranged, turning, until
from tests.local import local

pytestmark = pytest.mark.anyio


async def prepare(app: Penstock) -> tuple[Broker, list[Schedule]]:
    broker = await app.broker()
    await app.prepare(broker)
    return local(broker), await broker.admin.schedules()


async def test_a_cron_task_runs_at_its_tick() -> None:
    clock = ManualClock()
    app = Penstock("sqlite://")
    app.connections = Arranged(app.url, clock)
    runs: list[int] = []

    @app.task(cron="0 9 * * MON-FRI", timezone="Europe/Rome", queue="reports")
    def report(context: Context, pages: int = 3) -> None:
        runs.append(pages)

    async with turning(app) as (worker, agents):
        clock.advance(8.1 * 3600)
        agents.nudge("scheduler")
        await until(lambda: worker.completed == 1)
        clock.advance(24 * 3600)
        agents.nudge("scheduler")
        await until(lambda: worker.completed == 2)
    assert runs == [3, 3]
    await app.aclose()


async def test_a_schedule_that_is_as_declared_is_left_alone(app: Penstock) -> None:
    """Or a worker that restarts would skip the tick that is due, and start what is paused."""

    @app.task(name="report", cron="*/5 * * * *")
    def report() -> None: ...

    broker, (made,) = await prepare(app)
    paused = await broker.store.save_schedule(
        Schedule(
            made.name, made.cron, made.draft, paused=True, id=made.id,
            queue_id=made.queue_id, next_at=12345, declared_in=made.declared_in,
        )
    )  # fmt: skip
    assert (await prepare(app))[1] == [paused]


async def test_a_changed_schedule_is_saved_and_stays_paused(app: Penstock) -> None:
    def report() -> None: ...

    app.task(name="report", cron="*/5 * * * *", missed="all")(report)
    broker, (made,) = await prepare(app)
    assert made.missed is Missed.ALL
    await broker.store.save_schedule(
        Schedule(made.name, made.cron, made.draft, paused=True, id=made.id, queue_id=made.queue_id)
    )
    again = Penstock(app.url)
    again.connections = app.connections
    again.task(name="report", cron="*/7 * * * *")(report)
    _, (changed,) = await prepare(again)
    assert (changed.cron, changed.paused, changed.missed) == ("*/7 * * * *", True, Missed.ONE)


async def test_a_cron_task_that_needs_arguments_is_refused() -> None:
    def report(pages: int) -> None: ...

    with pytest.raises(InvalidInput, match="missing a required argument: 'pages'"):
        Penstock("sqlite://").task(cron="* * * * *")(report)
