"""Expiry, aging, the monitor of dead letters and the archiver keep their promises."""

import pytest
from structlog.testing import capture_logs

from penstock.agents.ager import PriorityAger
from penstock.agents.dead_letter_monitor import DeadLetterMonitor
from penstock.agents.expirer import Expirer
from penstock.agents.pruner import Pruner
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Archived
from penstock.model.message import Dedup, Draft, SettleReject, State
from penstock.model.store_types import Cursor
from penstock.testing.simulation import Simulation
from tests.agents.scenes import hold, last_run, publish, state

pytestmark = pytest.mark.anyio


async def test_a_message_past_its_time_to_live_expires_and_a_claimed_one_does_not(
    simulation: Simulation,
) -> None:
    (held,) = await hold(simulation.broker, "default")
    await simulation.broker.complete(held)
    claimed = await simulation.broker.publish(Draft(ttl=1.0))
    await simulation.broker.claim("default", consumer="holder", lease=600.0)
    ready = await simulation.broker.publish(Draft(ttl=1.0))
    waiting = await simulation.broker.publish(Draft(ttl=1.0, delay=600.0))
    late = await simulation.broker.publish(Draft(deadline=simulation.clock() + 1_000_000))
    await simulation.advance("61s")
    ids = (claimed.id, ready.id, waiting.id, late.id)
    assert [await state(simulation.broker, id) for id in ids] == [
        State.CLAIMED,
        State.EXPIRED,
        State.EXPIRED,
        State.EXPIRED,
    ]


async def test_a_full_batch_of_expired_messages_goes_on_at_once_on_one_node(
    simulation: Simulation,
) -> None:
    await simulation.broker.publish_many([Draft(ttl=1.0) for _ in range(2_500)])
    simulation.clock.advance(2)
    one, other = (Expirer(simulation.store, simulation.broker.directory, by) for by in ("1", "2"))
    assert [await one.tick(), await other.tick(), await one.tick()] == [0, 60.0, 60.0]
    run = await last_run(simulation.store, "expiry_enforcer")
    assert run is not None
    assert (run.by, run.result) == ("1", '{"expired":500}')


async def test_a_low_message_under_a_steady_high_flow_is_delivered_in_bounded_time(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.create_queue("jobs", preset_name="scaiqueue")
    low = await simulation.broker.publish(Draft(queue="jobs", priority=0))
    for _ in range(4):
        for priority in (1000, 2000, 3000):
            await simulation.broker.publish_many(
                [Draft(queue="jobs", priority=priority) for _ in range(10)]
            )
        await simulation.advance("300s")
        taken = await simulation.broker.claim("jobs", consumer="slow", limit=10)
        if low.id in [message.id for message in taken.messages]:
            return
    pytest.fail("starved")


async def test_a_queue_that_does_not_age_stays_as_it_is(simulation: Simulation) -> None:
    low = await simulation.broker.publish(Draft(priority=0))
    high = await simulation.broker.publish(Draft(priority=5))
    await simulation.advance("1h")
    taken = await simulation.broker.claim("default", consumer="c", limit=2)
    assert [message.id for message in taken.messages] == [high.id, low.id]
    assert await last_run(simulation.store, "priority_aging_worker") is None


async def test_a_fleet_ages_a_message_once_a_tick(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("jobs", preset_name="scaiqueue")
    drafts = [Draft(queue="jobs", priority=priority) for priority in range(5)]
    ids = [published.id for published in await simulation.broker.publish_many(drafts)]
    simulation.clock.advance(300)
    workers = [PriorityAger(simulation.store, QueueCache(simulation.store), by) for by in "abc"]
    for worker in workers * 3:
        assert 0 < await worker.tick() <= 300
    taken = await simulation.broker.claim("jobs", consumer="c", limit=5)
    # All but the highest moved up one level: the second highest, older, is now first.
    assert [message.id for message in taken.messages] == [ids[n] for n in (3, 4, 2, 1, 0)]
    run = await last_run(simulation.store, "priority_aging_worker")
    assert run is not None
    assert (run.by, run.result) == ("a", '{"moved":4}')


async def dead_letters(broker: Broker, count: int) -> None:
    for held in await hold(broker, "default", count):
        await broker.settle(held, SettleReject("no"))


async def test_the_monitor_warns_when_dead_letters_grow_and_only_then(
    simulation: Simulation,
) -> None:
    await dead_letters(simulation.broker, 2)
    with capture_logs() as first:
        await simulation.advance("10m")
    await dead_letters(simulation.broker, 3)
    with capture_logs() as second:
        await simulation.advance("10m")
    await simulation.broker.admin.purge("default", "dead")
    with capture_logs() as third:
        await simulation.advance("10m")
    warning = {
        "event": "dead_letters_growing",
        "tenant": "default",
        "scope": "default",
        "log_level": "warning",
    }
    assert first == [{**warning, "size": 2, "delta": 2}]
    assert second == [{**warning, "size": 5, "delta": 3}]
    assert third == []


async def test_of_many_nodes_one_warns_of_the_same_growth(simulation: Simulation) -> None:
    await dead_letters(simulation.broker, 1)
    monitors = [
        DeadLetterMonitor(simulation.store, QueueCache(simulation.store), by) for by in "abc"
    ]
    with capture_logs() as logs:
        for _ in range(5):
            for monitor in monitors:
                await monitor.tick()
            simulation.clock.advance(60)
    assert len(logs) == 1


async def test_the_monitor_counts_by_scope(simulation: Simulation) -> None:
    admin = simulation.broker.admin
    await admin.create_scope("sales")
    await admin.create_queue("mail", scope="sales", max_depth=1, overflow="dead")
    await simulation.broker.publish_many([Draft(queue="mail")] * 3, scope="sales")
    with capture_logs() as logs:
        await simulation.advance("1m")
    assert [(entry["scope"], entry["size"]) for entry in logs] == [("sales", 2)]


async def complete_one(simulation: Simulation, queue: str) -> int:
    (held,) = await hold(simulation.broker, queue)
    await simulation.broker.complete(held)
    return held.id


async def test_only_what_is_older_than_its_queues_retention_leaves(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("short", retention=3_600.0)
    kept = await complete_one(simulation, "default")
    old = await complete_one(simulation, "short")
    await simulation.advance("2m")
    young = await complete_one(simulation, "short")
    await simulation.advance("59m")
    await simulation.run_until_idle()
    assert await state(simulation.broker, young) is State.COMPLETED
    assert await state(simulation.broker, kept) is State.COMPLETED
    with pytest.raises(Archived):
        await simulation.broker.admin.get(old)


async def test_dead_letters_end_after_their_queues_dead_retention(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("short", dead_retention=3_600.0)
    ids = []
    for queue in ("short", "default"):
        (held,) = await hold(simulation.broker, queue)
        await simulation.broker.settle(held, SettleReject("no"))
        ids.append(held.id)
    await simulation.advance("59m")
    assert await state(simulation.broker, ids[0]) is State.DEAD
    await simulation.advance("10m")
    assert await state(simulation.broker, ids[0]) is State.EXPIRED
    assert await state(simulation.broker, ids[1]) is State.DEAD


async def test_a_queue_whose_retention_was_shortened_is_looked_at_from_the_beginning(
    simulation: Simulation,
) -> None:
    await simulation.broker.admin.create_queue("short", retention=60.0)
    await simulation.broker.admin.create_queue("other", retention=86_400.0)
    id = await complete_one(simulation, "other")
    await complete_one(simulation, "short")
    await simulation.advance("10m")
    await simulation.broker.admin.set_queue("other", retention=60.0)
    await simulation.advance("6m")
    with pytest.raises(Archived):
        await simulation.broker.admin.get(id)


async def test_what_an_export_has_not_read_stays(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("short", retention=60.0)
    id = await complete_one(simulation, "short")
    await simulation.store.save_cursor("lake", Cursor())
    await simulation.advance("10m")
    assert await state(simulation.broker, id) is State.COMPLETED
    feed = await simulation.store.feed(Cursor(), 100)
    await simulation.store.save_cursor("lake", feed.cursor)
    await simulation.advance("6m")
    with pytest.raises(Archived):
        await simulation.broker.admin.get(id)


async def test_a_long_history_is_pruned_in_batches_on_one_node(simulation: Simulation) -> None:
    await simulation.broker.admin.create_queue("short", retention=0.0)
    for _ in range(3):
        for held in await hold(simulation.broker, "short", 1_000):
            await simulation.broker.complete(held)
    simulation.clock.advance(1)
    one, other = (Pruner(simulation.store, simulation.broker.directory, by) for by in ("1", "2"))
    assert await one.tick() == 0
    assert await other.tick() == 300.0
    while await one.tick() == 0:
        pass
    assert await simulation.broker.admin.find("short") == []


async def test_a_dedup_key_is_dropped_when_its_window_is_over(simulation: Simulation) -> None:
    draft = Draft(dedup=Dedup("k", window=60.0))
    first = await simulation.broker.publish(draft)
    assert (await simulation.broker.publish(draft)).duplicate
    await simulation.advance("10m")
    assert (await simulation.broker.publish(draft)).id != first.id
    run = await last_run(simulation.store, "message_archiver")
    assert run is not None
    assert run.result == '{"messages":0,"keys":1}'


async def test_after_publishing_only_the_historian_writes(simulation: Simulation) -> None:
    # Work that nobody claims is an anomaly, and is recorded.
    await simulation.broker.admin.set_queue("default", anomalies={"off": ["no_consumer"]})
    await publish(simulation.broker, "default", 10)
    await simulation.advance("1h")
    runs = await simulation.store.agent_runs()
    assert [(each.name, each.result) for each in runs] == [("historian", '{"rows":10}')]
