"""A workflow of weeks in virtual time: few rounds, and people and signals at the right moment."""

from typing import Any

import pytest

from penstock import Context, Penstock
from penstock.errors import InvalidState
from penstock.model.message import State
from penstock.testing.simulation import Simulation
from penstock.testing.sync import SyncSimulation

pytestmark = pytest.mark.anyio


def make_app() -> Penstock:
    app = Penstock("sqlite://")

    @app.task(name="refund", queue="refunds")
    async def refund(context: Context) -> list[Any]:
        await context.sleep("7d")
        answer = await context.approve({"title": "Refund?"}, timeout="14d")
        parcel = await context.signal("parcel", timeout="7d")
        return [answer.choice, parcel]

    return app


async def test_a_workflow_of_weeks_needs_few_rounds() -> None:
    app = make_app()
    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await app.tasks["refund"].aenqueue()
        ticks = 0
        tick = simulation._tick

        async def count(agent: object) -> bool:
            nonlocal ticks
            ticks += 1
            return await tick(agent)  # type: ignore[arg-type]

        simulation._tick = count  # type: ignore[method-assign]
        await simulation.advance("28d12h")
        assert await job.aresult() == ["expired", None]
        assert ticks < 50 * len(simulation.agents)


async def test_timeouts_and_expiries_happen_at_their_moment() -> None:
    app = make_app()
    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await app.tasks["refund"].aenqueue()
        await simulation.advance("30d")
        (opened, ended) = [(await job.arecord()).timeline[place].at for place in (0, -1)]
        assert (ended - opened) / 86_400e6 == pytest.approx(28, abs=0.001)


async def test_a_test_decides_and_signals() -> None:
    app = make_app()
    async with Simulation.open() as simulation:
        await simulation.use(app)
        with pytest.raises(InvalidState, match="expected one open human step, found 0"):
            await simulation.decide("approve")
        job = await app.tasks["refund"].aenqueue()
        await simulation.advance("7d")
        await simulation.decide("approve")
        assert await job.astatus() is State.SCHEDULED
        await simulation.signal(job, "parcel", {"dock": 4})
        assert await job.aresult() == ["approve", {"dock": 4}]


def test_a_sync_test_decides_and_signals() -> None:
    app = make_app()
    with SyncSimulation.open(app) as simulation:
        job = app.tasks["refund"].enqueue()
        simulation.advance("7d")
        simulation.decide("reject")
        simulation.signal(job, "parcel", 1)
        assert job.result() == ["reject", 1]
