"""Leases that run out come back, each once, and never from a consumer that lives."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.agents.reclaimer import Reclaimer
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.errors import StoreError
from penstock.model.message import Draft, Leased, State, Verb
from penstock.model.queue import Queue
from penstock.testing.faults import Faults
from penstock.testing.simulation import ManualClock, Simulation
from tests.agents.scenes import hold, last_run, state, two_stores

pytestmark = pytest.mark.anyio
AWAY = StoreError("the store is away")


def enforcer(simulation: Simulation, by: str = "me") -> Reclaimer:
    return Reclaimer(simulation.store, QueueCache(simulation.store), by)


async def watch(simulation: Simulation, agent: Reclaimer, seconds: int) -> None:
    """The agent runs every second, as under a runner."""
    for _ in range(seconds):
        await agent.tick()
        simulation.clock.advance(1)


async def test_a_lost_lease_is_ready_again_within_two_seconds_of_its_end(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.create_queue("jobs", lease=30.0)
    (held,) = await hold(simulation.broker, "jobs")
    await simulation.advance(30)
    assert await state(simulation.broker, held) is State.CLAIMED
    await simulation.advance(2)
    record = await simulation.broker.admin.get(held.id)
    assert (record.state, record.deliveries, record.attempts) == (State.READY, 1, 0)
    assert [(row.verb, row.reason) for row in record.timeline] == [(Verb.RECLAIM, "LEASE_EXPIRED")]


async def test_a_lease_that_is_extended_in_time_is_left_alone(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("jobs", lease=30.0)
    (held,) = await hold(simulation.broker, "jobs")
    for _ in range(10):
        await simulation.advance(10)
        await simulation.broker.extend(held, 30.0)
    assert await state(simulation.broker, held) is State.CLAIMED


async def test_a_message_that_loses_every_worker_ends_among_the_dead(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.create_queue("jobs", lease=30.0, max_deliveries=2)
    (held,) = await hold(simulation.broker, "jobs")
    await simulation.advance(31)
    await simulation.broker.claim("jobs", consumer="another")
    await simulation.advance(31)
    record = await simulation.broker.admin.get(held.id)
    assert (record.state, record.reason) == (State.DEAD, "max_deliveries")


async def test_lost_leases_are_logged_and_reported_with_counts(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("jobs", lease=30.0)
    await simulation.broker.admin.create_queue("last", lease=30.0, max_deliveries=1)
    await hold(simulation.broker, "jobs", 3)
    await hold(simulation.broker, "last", 2)
    with capture_logs() as logs:
        await simulation.advance(40)
    assert logs[0] == {"event": "leases_reclaimed", "ready": 3, "dead": 2, "log_level": "info"}
    run = await last_run(simulation.store, "visibility_timeout_enforcer")
    assert run is not None
    assert (run.by, run.result) == ("node-0", '{"ready":3,"dead":2}')


async def test_a_node_that_does_not_have_the_tick_reclaims_nothing(
    simulation: Simulation,
) -> None:
    (held,) = await hold(simulation.broker, "default", lease=11.0)
    agent = enforcer(simulation)
    await watch(simulation, agent, 12)
    assert await simulation.store.claim_tick(agent.name, agent.every, "another")
    assert await agent.tick() == agent.every
    assert await state(simulation.broker, held) is State.CLAIMED
    simulation.clock.advance(1)
    await agent.tick()
    assert await state(simulation.broker, held) is State.READY


async def test_a_node_that_dies_with_the_tick_delays_the_others_by_half_a_second(
    simulation: Simulation,
) -> None:
    (held,) = await hold(simulation.broker, "default", lease=11.0)
    agent = enforcer(simulation)
    await watch(simulation, agent, 12)
    assert await simulation.store.claim_tick(agent.name, agent.every, "dead")
    simulation.clock.advance(0.5)
    await agent.tick()
    assert await state(simulation.broker, held) is State.READY


async def test_a_full_batch_goes_on_at_once(simulation: Simulation) -> None:
    await hold(simulation.broker, "default", 700, lease=11.0)
    agent = enforcer(simulation)
    await watch(simulation, agent, 12)
    assert [await agent.tick(), await agent.tick()] == [0, agent.every]
    assert len((await simulation.store.expired_leases(1_000)).leases) == 0


async def test_a_process_that_just_started_leaves_leases_alone_for_a_third_of_them(
    simulation: Simulation,
) -> None:
    (held,) = await hold(simulation.broker, "default")
    simulation.clock.advance(60)
    agent = enforcer(simulation)
    await watch(simulation, agent, 10)
    assert await state(simulation.broker, held) is State.CLAIMED
    await watch(simulation, agent, 1)
    assert await state(simulation.broker, held) is State.READY


async def test_workers_that_live_keep_their_leases_when_the_store_was_away() -> None:
    faults = Faults()
    async with Simulation.open(faults=faults) as simulation:
        living, killed = await hold(simulation.broker, "default", 2)
        await simulation.advance(10)
        with faults.outage(AWAY):
            await simulation.advance(60)
        await simulation.advance(8)
        answer = await simulation.broker.extend(living, 30.0)
        assert answer.lease_until == simulation.clock() + 30_000_000
        await simulation.advance(4)
        assert await state(simulation.broker, living) is State.CLAIMED
        assert await state(simulation.broker, killed) is State.READY


async def test_a_machine_that_was_asleep_gives_the_workers_time_to_extend(
    simulation: Simulation,
) -> None:
    (held,) = await hold(simulation.broker, "default")
    await simulation.advance(10)
    simulation.clock.advance(3_600)
    await simulation.advance(9)
    assert await state(simulation.broker, held) is State.CLAIMED
    await simulation.advance(2)
    assert await state(simulation.broker, held) is State.READY


async def test_a_messages_own_lease_counts_for_the_guard(simulation: Simulation) -> None:
    published = await simulation.broker.publish(Draft(lease=60.0))
    await simulation.broker.claim("default", consumer="holder")
    simulation.clock.advance(90)
    await simulation.advance(19)
    assert await state(simulation.broker, published.id) is State.CLAIMED
    await simulation.advance(2)
    assert await state(simulation.broker, published.id) is State.READY


async def test_long_leases_that_are_spared_do_not_hide_the_short_ones(
    simulation: Simulation,
) -> None:
    long, *_ = await hold(simulation.broker, "default", 600, lease=60.0)
    simulation.clock.advance(59)
    (short,) = await hold(simulation.broker, "default", lease=2.0)
    simulation.clock.advance(10)
    await watch(simulation, enforcer(simulation), 11)
    assert await state(simulation.broker, short) is State.READY
    assert await state(simulation.broker, long) is State.CLAIMED


async def test_two_nodes_at_once_reclaim_each_lease_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with two_stores(tmp_path, clock) as stores:
        agents = [Reclaimer(s, QueueCache(s), f"node-{s!r}") for s in stores]
        held = await hold(Broker(stores[0]), "default", 50)
        for _ in range(32):
            await asyncio.gather(*(agent.tick() for agent in agents))
            clock.advance(1)
        broker = Broker(stores[1])
        records = [await broker.admin.get(message.id) for message in held]
    assert {record.state for record in records} == {State.READY}
    assert {len(record.timeline) for record in records} == {1}


class Meddling(QueueCache):
    """Completes a message while the agent decides about it."""

    def __init__(self, broker: Broker, held: Leased) -> None:
        super().__init__(broker.store)
        self.broker = broker
        self.held = held

    async def get_by_id(self, queue_id: int) -> Queue:
        await self.broker.complete(self.held)
        return await super().get_by_id(queue_id)


async def test_a_message_that_is_completed_late_but_first_is_not_reclaimed(
    simulation: Simulation,
) -> None:
    (late,) = await hold(simulation.broker, "default", lease=11.0)
    agent = Reclaimer(simulation.store, Meddling(simulation.broker, late), "me")
    await watch(simulation, agent, 11)
    simulation.clock.advance(1)
    with capture_logs() as logs:
        assert await agent.tick() == agent.every
    record = await simulation.broker.admin.get(late.id)
    assert (record.state, len(record.timeline), logs) == (State.COMPLETED, 1, [])


class Dawdling(QueueCache):
    """Lets two seconds pass while the agent decides."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.store)
        self.clock = simulation.clock

    async def get_by_id(self, queue_id: int) -> Queue:
        self.clock.advance(2)
        return await super().get_by_id(queue_id)


async def test_what_ran_out_while_the_agent_waited_for_its_tick_is_reclaimed_with_the_rest(
    simulation: Simulation,
) -> None:
    """Or it would wait for the next tick: whoever has this one keeps the others away."""
    (first,) = await hold(simulation.broker, "default", lease=11.0)
    (second,) = await hold(simulation.broker, "default", lease=12.5)
    agent = Reclaimer(simulation.store, Dawdling(simulation), "me")
    await watch(simulation, agent, 12)
    await agent.tick()
    assert await state(simulation.broker, first) is State.READY
    assert await state(simulation.broker, second) is State.READY
