"""A fault before and after every store call of runs that wait: nothing is lost or doubled."""

import pytest

from penstock import Context, Penstock
from penstock.errors import OutcomeUnknown
from penstock.model.message import State
from penstock.testing.faults import Fault, Faults, When
from penstock.testing.simulation import Simulation

pytestmark = pytest.mark.anyio
CUT = OutcomeUnknown("cut off")


class Scene:
    """A task with a step, a sleep, two children and a signal, and what its runs did."""

    def __init__(self) -> None:
        self.app = app = Penstock("sqlite://")
        self.charged: list[int] = []

        @app.task(queue="parts", max_attempts=5)
        def part(number: int) -> int:
            return number

        @app.task(queue="main", max_attempts=5)
        async def main(context: Context) -> list[int]:
            charge = await context.step("charge", self.charge)
            await context.sleep("30s")
            parts = await context.gather(part.call(1), part.call(2))
            answer = await context.signal("go", timeout="30d", type=int)
            assert answer is not None
            return [charge, answer, *(each.value for each in parts)]

        self.main = main

    def charge(self) -> int:
        self.charged.append(len(self.charged))
        return 7


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("verb", "call"),
    [("save_steps", 1), ("wait", 1), ("wait", 2), ("wait", 3), ("resume_held", 2), ("steps", 1),
     ("wait_facts", 1), ("edges", 1), ("signals", 1), ("complete", 1)],
)  # fmt: skip
async def test_no_crash_point_of_a_run_that_waits_loses_or_repeats_a_step(
    verb: str, call: int, when: When
) -> None:
    faults = Faults(Fault(when, verb, call, CUT), armed=False)
    async with Simulation.open(faults=faults) as simulation:
        await run_through(simulation, faults, repeats=(verb, when) == ("save_steps", "before"))


async def run_through(simulation: Simulation, faults: Faults, *, repeats: bool) -> None:
    """Runs the scene through its fault. `repeats`: the result of its effect was not stored."""
    scene = Scene()
    await simulation.use(scene.app)
    job = await scene.main.aenqueue()
    with faults.armed():
        await simulation.advance("4m")
    assert len(faults.fired) == 1
    assert await job.astatus() is State.SCHEDULED
    for _ in range(2):
        await scene.app.asignal(job.id, "go", 9, key="once")
    await simulation.advance("2m")
    assert await job.aresult() == [7, 9, 1, 2]
    assert len(scene.charged) == (2 if repeats else 1)
    children = await simulation.broker.admin.find("parts")
    assert [child.state for child in children] == [State.COMPLETED] * 2
    steps = (await simulation.broker.waits.steps(job.id)).steps
    assert [step.name for step in steps] == ["charge", "sleep", "gather", "go"]
    assert await simulation.store.holds([job.id]) == []
