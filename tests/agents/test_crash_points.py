"""A fault before and after every store call: no message is lost, none is doubled."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import pytest

from penstock.broker.local import Broker
from penstock.errors import InvalidState, OutcomeUnknown, StoreError
from penstock.model.message import Dedup, Draft, Leased, Nack, SettleReject, State
from penstock.model.queue import Missed, Schedule
from penstock.rules.callbacks import decode
from penstock.testing.faults import Faults
from penstock.testing.simulation import Simulation
from tests.agents.scenes import bodies, hold
from tests.extent import ALL

pytestmark = pytest.mark.anyio
CUT = OutcomeUnknown("cut off")
T = TypeVar("T")


async def stubbornly(act: Callable[[], Awaitable[T]]) -> T:
    """As a client does: what was not answered is asked again."""
    try:
        return await act()
    except StoreError:
        return await act()


async def work(broker: Broker) -> None:
    """Publishes three, completes one, nacks one, and forgets the third."""
    for number in range(3):
        draft = Draft(body=b"%d" % number, dedup=Dedup(f"k{number}"))
        await stubbornly(partial(broker.publish, draft))
    taken = await stubbornly(lambda: broker.claim("default", consumer="c", limit=3))
    # A claim whose answer was cut off comes back when its leases end.
    if taken.messages:
        done, failed, _ = taken.messages
        await stubbornly(lambda: broker.complete(done, b"result"))
        await stubbornly(lambda: broker.settle(failed, Nack("no")))


async def assert_each_ended_once(simulation: Simulation, expected: list[bytes]) -> None:
    assert sorted(await bodies(simulation.broker, "default")) == expected
    for record in await simulation.broker.admin.find("default"):
        assert record.state is State.COMPLETED
        assert [row.final for row in record.timeline].count(True) == 1
    left = [tally for tally in await simulation.store.census() if tally.count]
    assert {tally.place for tally in left} == {"message", "ended"}


async def test_no_crash_point_of_a_client_loses_or_doubles_a_message() -> None:
    points = 0
    for faults in Faults.every_call(CUT):
        async with Simulation.open(faults=faults) as simulation:
            with faults.armed():
                await work(simulation.broker)
            simulation.handle("default", lambda message: None)
            await simulation.advance("2m")
            await assert_each_ended_once(simulation, [b"0", b"1", b"2"])
        points += len(faults.fired)
    assert points >= 16


async def end_each(broker: Broker) -> None:
    """Publishes three that are to be told of; completes one, rejects one, cancels one."""
    for number in range(3):
        draft = Draft(dedup=Dedup(f"k{number}"), callback="https://example.org/")
        await stubbornly(partial(broker.publish, draft))
    taken = await stubbornly(lambda: broker.claim("default", consumer="c", limit=2))
    if len(taken.messages) == 2:
        done, bad = taken.messages
        await stubbornly(lambda: broker.complete(done))
        await stubbornly(lambda: broker.settle(bad, SettleReject("no")))
    for record in await stubbornly(lambda: broker.admin.find("default", state=State.READY)):
        await stubbornly(partial(broker.admin.cancel, record.message.id))


async def test_no_crash_point_tells_of_an_end_twice_or_never() -> None:
    points = 0
    for faults in Faults.every_call(CUT):
        async with Simulation.open(faults=faults) as simulation:
            with faults.armed(), suppress(InvalidState):
                await end_each(simulation.broker)
            simulation.handle("default", lambda message: None)
            await simulation.advance("2m")
            for record in await simulation.broker.admin.find("default"):
                assert record.state.final or record.state is State.DEAD
                told = await simulation.broker.admin.callbacks(record.message.id)
                assert [decode(each.message.body).state for each in told] == [record.state]
        points += len(faults.fired)
    assert points >= 16


async def scene(simulation: Simulation) -> None:
    """Something to do for every agent: a lost lease, a delay, a schedule, an expiry."""
    await hold(simulation.broker, "default", lease=3.0)
    await simulation.broker.publish(Draft(body=b"later", delay=4.0))
    await simulation.broker.admin.create_queue("short")
    await simulation.broker.publish(Draft(queue="short", ttl=1.0))
    schedule = Schedule("s", "*/10 * * * * *", Draft(body=b"tick"), missed=Missed.ALL)
    await simulation.broker.admin.schedule(schedule)


def sweep_agents() -> Iterator[Faults]:
    """Agents call the store hundreds of times: one in three of those fails here, all with --all."""
    plans = Faults.every_call(CUT)
    # The first counts the calls.
    yield next(plans)
    # An odd step takes turns between before and after.
    yield from islice(plans, 0, None, 1 if ALL else 3)


async def test_no_crash_point_of_agents_and_workers_loses_or_doubles_a_message() -> None:
    points = 0
    for faults in sweep_agents():
        handled: list[bytes] = []

        async def handle(message: Leased, handled: list[bytes] = handled) -> None:
            handled.append(message.body)

        async with Simulation.open(faults=faults) as simulation:
            await scene(simulation)
            simulation.handle("default", handle)
            with faults.armed():
                await simulation.advance(12)
            await simulation.advance(48)
            (schedule,) = await simulation.store.schedules()
            await simulation.store.delete_schedule(schedule.id)
            await simulation.advance("2m")
            expected = sorted([b"0", b"later"] + [b"tick"] * 6)
            await assert_each_ended_once(simulation, expected)
            assert set(handled) == set(expected)
            found = await simulation.broker.admin.find("short")
            assert [record.state for record in found] == [State.EXPIRED]
        points += len(faults.fired)
    assert points >= 100
