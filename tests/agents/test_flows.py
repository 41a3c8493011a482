"""Workflows of tasks, in virtual time."""

import pytest

from penstock import Context, Penstock, chain, group
from penstock.errors import ResultGone
from penstock.model.workflow import WorkflowState
from penstock.testing.simulation import Simulation

pytestmark = pytest.mark.anyio


async def test_a_fan_in_gets_the_results_of_its_parents() -> None:
    app = Penstock("sqlite://")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def add(context: Context) -> int:
        return sum(await context.results())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        async with app.workflow("sum", key="today") as flow:
            parts = [flow.add(double.call(number)) for number in range(5)]
            total = flow.add(add.call(), after=parts)
        await simulation.advance(5)
        assert await total.job.aresult() == 20
        assert (await flow.aview()).workflow.state is WorkflowState.COMPLETED


async def test_chains_and_groups_run_in_order() -> None:
    app = Penstock("sqlite://")
    ran: list[str] = []

    @app.task
    def note(text: str) -> str:
        ran.append(text)
        return text

    async with Simulation.open() as simulation:
        await simulation.use(app)
        await chain(note.call("a"), note.call("b"), note.call("c")).aenqueue()
        await simulation.advance(5)
        assert ran == ["a", "b", "c"]
        ran.clear()
        await group(note.call("x"), note.call("y")).then(note.call("z")).aenqueue()
        await simulation.advance(5)
        assert (sorted(ran[:2]), ran[2:]) == (["x", "y"], ["z"])
        await group().then(note.call("alone")).aenqueue()
        await simulation.advance(5)
        assert ran[-1] == "alone"


async def test_results_that_are_gone_when_a_workflow_is_redriven_raise() -> None:
    app = Penstock("sqlite://")
    found: list[object] = []

    @app.task
    def read(number: int) -> int | None:
        return number or None

    @app.task
    async def add(context: Context) -> None:
        try:
            found.append(await context.results())
        except ResultGone as error:
            found.append(type(error))
        await context.sleep("1h")

    async with Simulation.open() as simulation:
        await simulation.use(app)
        async with app.workflow("sum") as flow:
            parts = [flow.add(read.call(number)) for number in range(2)]
            flow.add(add.call(), after=parts)
        await simulation.advance(5)
        await simulation.broker.workflows.cancel(flow.id)
        await simulation.advance(2 * 86_400)
        await simulation.broker.workflows.redrive(flow.id)
        await simulation.advance(5)
        assert found == [[None, 1], ResultGone]
