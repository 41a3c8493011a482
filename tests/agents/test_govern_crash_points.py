"""A fault before and after the store calls of publishes with rules, end rules and broadcasts."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.broker.local import Broker
from penstock.errors import OutcomeUnknown
from penstock.model.message import Dedup, Draft
from penstock.testing.faults import Fault, Faults
from penstock.testing.simulation import Simulation
from tests.agents.scenes import bodies
from tests.agents.test_crash_points import stubbornly
from tests.extent import ALL

pytestmark = pytest.mark.anyio
CUT = OutcomeUnknown("cut off")
WRITES = ("enqueue", "advance", "complete")
READS = ("documents", "recent", "feed", "get_many", "find")
RULES = (
    {"name": "copy", "queue": "orders", "do": [{"copy": "audit"}]},
    {"name": "after", "queue": "orders", "on": "completed", "do": [{"copy": "after"}]},
)


async def govern(broker: Broker) -> None:
    """A copy at the publish, a message at the end, and a copy for each of two subscriptions."""
    for name in ("orders", "audit", "after"):
        await broker.admin.create_queue(name)
    await broker.admin.create_queue("events", kind="broadcast")
    for name in ("a", "b"):
        await broker.broadcasts.subscribe("events", name)
    for rule in RULES:
        await broker.rules.save(rule)


async def publish_each(broker: Broker) -> None:
    for queue in ("orders", "events"):
        for number in range(2):
            draft = Draft(queue=queue, body=b"%d" % number, dedup=Dedup(f"k{number}"))
            await stubbornly(partial(broker.publish, draft))


async def assert_each_copied_once(simulation: Simulation) -> None:
    for queue in ("orders", "audit", "after", "events/a", "events/b"):
        assert sorted(await bodies(simulation.broker, queue)) == [b"0", b"1"], queue


def list_crash_points() -> Iterator[Faults]:
    """Yields faults at every write and the first reads, and at all calls with --all."""
    if ALL:
        yield from Faults.every_call(CUT)
        return
    clean = Faults(armed=False)
    yield clean
    calls = Counter(clean.calls)
    for verb in WRITES:
        for call in range(1, calls[verb] + 1):
            yield Faults(Fault("before", verb, call, CUT), armed=False)
            yield Faults(Fault("after", verb, call, CUT), armed=False)
    for verb in READS:
        if calls[verb]:
            yield Faults(Fault("before", verb, 1, CUT), armed=False)


async def test_no_crash_point_of_a_publisher_loses_or_doubles_a_copy() -> None:
    points = 0
    for faults in list_crash_points():
        async with Simulation.open(faults=faults) as simulation:
            await govern(simulation.broker)
            with faults.armed():
                await publish_each(simulation.broker)
            simulation.handle("orders", lambda message: None)
            await simulation.advance(30)
            await assert_each_copied_once(simulation)
        points += len(faults.fired)
    assert points >= 8


async def test_no_crash_point_of_agents_fires_an_end_twice_or_never() -> None:
    points = 0
    for faults in list_crash_points():
        async with Simulation.open(faults=faults) as simulation:
            await govern(simulation.broker)
            await publish_each(simulation.broker)
            simulation.handle("orders", lambda message: None)
            with faults.armed():
                await simulation.advance(1.2)
            await simulation.advance(45)
            await assert_each_copied_once(simulation)
        points += len(faults.fired)
    assert points >= (100 if ALL else 14)


async def test_no_crash_point_of_catching_up_loses_or_doubles_a_copy() -> None:
    points = 0
    for faults in list_crash_points():
        async with Simulation.open(faults=faults) as simulation:
            await govern(simulation.broker)
            await publish_each(simulation.broker)
            await simulation.broker.broadcasts.subscribe("events", "c", start="earliest")
            with faults.armed():
                await simulation.advance(1.2)
            await simulation.advance(45)
            assert sorted(await bodies(simulation.broker, "events/c")) == [b"0", b"1"]
        points += len(faults.fired)
    assert points >= (100 if ALL else 14)
