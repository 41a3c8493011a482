"""Tasks that wait for a person, in virtual time."""

import pytest

from penstock import Context, Penstock
from penstock.errors import Forbidden
from penstock.model.human import HumanPattern
from penstock.model.message import Draft, State
from penstock.rules.human import Person
from penstock.testing.simulation import Simulation

pytestmark = pytest.mark.anyio
BOSS = Person("boss", acts_for_all=True, sees_all=True)


async def find_step(simulation: Simulation) -> int:
    (found,) = await simulation.broker.inbox.list_steps(BOSS, view="all")
    return found.step.id


async def test_a_task_waits_a_day_for_a_person() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="refunds")
    async def refund(context: Context, order: int) -> str:
        answer = await context.approve("refund", order=order, timeout="14d")
        return f"{answer.choice} by {answer.by}"

    async with Simulation.open() as simulation:
        await simulation.use(app)
        pattern = HumanPattern(name="refund", spec={"title": "Refund order {{order}}?"})
        await simulation.broker.inbox.patterns.save(pattern)
        job = await refund.aenqueue(7)
        await simulation.advance("1d")
        assert await job.astatus() is State.SCHEDULED
        id = await find_step(simulation)
        await simulation.broker.inbox.decide(id, BOSS, "approve")
        await simulation.advance(2)
        assert await job.aresult() == "approve by boss"


async def test_a_step_that_expires_says_so() -> None:
    app = Penstock("sqlite://")

    @app.task
    def ask(context: Context) -> str:
        answer = context.sync.approve({"title": "Ship it?"}, timeout=60)
        return f"{answer.choice} {answer.timed_out}"

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await ask.aenqueue()
        await simulation.advance(70)
        assert await job.aresult() == "expired True"


async def test_steps_of_a_cancelled_job_are_cancelled() -> None:
    app = Penstock("sqlite://")

    @app.task
    async def ask(context: Context) -> str:
        return (await context.approve({"title": "Ship it?"})).choice

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await ask.aenqueue()
        await simulation.advance(1)
        id = await find_step(simulation)
        await job.acancel()
        await simulation.advance(121)
        record = await simulation.broker.store.get(id)
        assert record is not None
        assert (record.state, record.reason) == (State.CANCELLED, "requester_ended")


async def test_steps_of_an_expired_job_are_cancelled_within_two_minutes() -> None:
    app = Penstock("sqlite://")

    @app.task(ttl=60)
    async def ask(context: Context) -> str:
        return (await context.approve({"title": "Ship it?"})).choice

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await ask.aenqueue()
        await simulation.advance(1)
        id = await find_step(simulation)
        await simulation.advance(180)
        record = await simulation.broker.store.get(id)
        assert record is not None
        assert await job.astatus() is State.EXPIRED
        assert (record.state, record.reason) == (State.CANCELLED, "requester_ended")


async def test_the_requester_is_who_published_the_first_of_the_lineage() -> None:
    app = Penstock("sqlite://")

    @app.task(queue="parts")
    async def ask(context: Context) -> str:
        return (await context.approve({"title": "Ship it?"})).by

    @app.task(queue="orders")
    async def order(context: Context) -> None:
        await context.enqueue(ask.call())

    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await order.aenqueue()
        first = (await simulation.broker.admin.get(job.id)).message
        await simulation.broker.admin.cancel(job.id)
        draft = Draft(queue="orders", type=first.type, body=first.body, publisher="boss")
        await simulation.broker.publish(draft)
        await simulation.advance(5)
        id = await find_step(simulation)
        with pytest.raises(Forbidden, match="'boss' requested human step"):
            await simulation.broker.inbox.decide(id, BOSS, "approve")
