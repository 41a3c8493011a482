"""The limits of durable steps, in virtual time."""

from itertools import pairwise

import pytest

from penstock import Context, Penstock
from penstock.broker.waiting import waits
from penstock.model.message import Record, State
from penstock.rules import waiting
from penstock.testing.simulation import Simulation
from penstock.worker import steps

pytestmark = pytest.mark.anyio
LONG = 600_000


async def run_once(app: Penstock) -> Record:
    """Runs the task `work` of the app until nothing is left to do."""
    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await app.tasks["work"].aenqueue()
        await simulation.run_until_idle()
        return await job.arecord()


async def test_the_results_of_a_message_have_a_size_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_MESSAGE_BYTES", 2 * LONG)
    app = Penstock("sqlite://")
    ran: list[int] = []

    def make(number: int) -> str:
        ran.append(number)
        return "x" * LONG

    @app.task(name="work")
    async def work(context: Context) -> None:
        for number in range(9):
            await context.step("make", make, number)

    record = await run_once(app)
    assert (record.state, ran) == (State.DEAD, [0, 1])
    assert "exceed 64 MB" in (record.error or "")


async def test_a_message_with_too_many_steps_is_dead_until_it_is_redriven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (waits, waiting):
        monkeypatch.setattr(module, "MAX_STEPS", 5)
    app = Penstock("sqlite://")
    ran: list[int] = []

    @app.task(name="work")
    async def work(context: Context) -> None:
        for number in range(9):
            await context.step("note", ran.append, number)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await work.aenqueue()
        await simulation.run_until_idle()
        record = await job.arecord()
        assert (record.state, record.reason) == (State.DEAD, "max_steps")
        assert ran == [0, 1, 2, 3, 4, 5]
        await simulation.advance(1)
        await simulation.broker.admin.redrive(job.id)
        await simulation.run_until_idle()
        assert await job.astatus() is State.COMPLETED
        assert ran == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8]


async def test_a_name_that_is_too_long_rejects_the_message() -> None:
    app = Penstock("sqlite://")
    runs: list[int] = []

    @app.task(name="work")
    async def work(context: Context) -> None:
        runs.append(1)
        await context.step("x" * 201, int)

    record = await run_once(app)
    assert (record.state, len(runs)) == (State.DEAD, 1)
    assert "step name" in (record.error or "")


async def test_a_stored_value_that_no_longer_fits_parks_the_message() -> None:
    app = Penstock("sqlite://")
    new: list[bool] = []

    def find_old() -> str:
        return "twelve"

    def find_new() -> int:
        return 12

    @app.task(name="work")
    async def work(context: Context) -> int:
        amount: int | str = await context.step("charge", find_new if new else find_old)
        await context.sleep(60)
        return int(amount)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await work.aenqueue()
        await simulation.run_until_idle()
        new.append(True)
        await simulation.advance(61)
        record = await job.arecord()
        assert (record.state, record.timeline[-1].reason) == (State.SCHEDULED, "CODE_CHANGED")
        await simulation.advance("3h")
        parks = [row for row in (await job.arecord()).timeline if row.verb == "park"]
        assert (await job.astatus(), len(parks)) == (State.DEAD, 11)


async def test_a_loop_of_short_waits_is_delayed_from_the_tenth_on() -> None:
    app = Penstock("sqlite://")

    @app.task(name="work")
    async def work(context: Context) -> None:
        for _ in range(30):
            await context.sleep(0)

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await app.tasks["work"].aenqueue()
        await simulation.advance("5m")
        record = await job.arecord()
        assert record.state is State.COMPLETED
        waits = [row.at for row in record.timeline if row.verb == "wait"]
        lasted = [later - earlier for earlier, later in pairwise(waits)]
        assert [each >= 1_000_000 for each in lasted] == [False] * 9 + [True] * 20
