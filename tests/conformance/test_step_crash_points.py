"""A fault before and after store calls of runs that wait, on every store."""

from collections.abc import Coroutine

import pytest

from penstock.model.message import Moment
from penstock.testing.faults import Fault, Faults, When
from penstock.testing.simulation import START, ManualClock, Simulation
from tests.agents.test_step_crash_points import CUT, run_through
from tests.conformance.engines import Engine
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


class EngineClock(ManualClock):
    """The clock of a simulation on any store: it moves that of the store."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.moment = START

    @property
    def now(self) -> Moment:
        return self.moment

    @now.setter
    def now(self, moment: Moment) -> None:
        finish(self.engine.travel((moment - self.moment) / 1_000_000))
        self.moment = moment


def finish(work: Coroutine[object, object, None]) -> None:
    """Runs a coroutine that waits for nothing."""
    with pytest.raises(StopIteration):
        work.send(None)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("verb", "call"),
    [("save_steps", 1), ("wait", 1), ("wait", 2), ("resume_held", 2), ("complete", 1)],
)
async def test_no_crash_point_loses_or_repeats_a_step(
    stage: Stage, verb: str, call: int, when: When
) -> None:
    faults = Faults(Fault(when, verb, call, CUT), armed=False)
    simulation = Simulation(faults.wrap(stage.store), EngineClock(stage.engine))
    try:
        await run_through(simulation, faults, repeats=(verb, when) == ("save_steps", "before"))
    finally:
        simulation.release_apps()
