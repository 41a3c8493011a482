"""Anomalies that only a running process notices: stolen locks, missing consumers, stalls."""

import pytest

from penstock.agents.anomaly_detector import AnomalyDetector
from penstock.broker.anomalies import add_stored, make_case
from penstock.broker.local import Broker
from penstock.errors import Busy, LockLost
from penstock.model.anomalies import Anomaly
from penstock.model.changes import Change, Changed
from penstock.model.message import Nack
from penstock.model.queue import QueueState
from penstock.model.store_types import Cursor, WorkerInfo
from tests.conformance.stage import DAY, LEASE_OVER, Stage
from tests.conformance.test_historian import watch

pytestmark = pytest.mark.anyio


async def look(stage: Stage) -> list[Anomaly]:
    await AnomalyDetector(stage.store, stage.broker.directory, "a").tick()
    return (await stage.broker.anomalies.list()).anomalies


async def test_a_settle_after_another_consumer_got_the_message_is_a_stolen_lock(
    stage: Stage,
) -> None:
    id = await stage.publish()
    (first,) = (await stage.broker.claim("default", consumer="ada")).messages
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    (second,) = (await stage.broker.claim("default", consumer="bob")).messages
    with pytest.raises(LockLost):
        await stage.broker.complete(first)
    with pytest.raises(LockLost):
        await stage.broker.settle(first, Nack("late"))
    # Nothing is written by the refused calls themselves.
    assert (await stage.broker.anomalies.list()).anomalies == []
    await stage.broker.complete(second)
    (found,) = await look(stage)
    assert (found.kind, found.severity, found.consumer, found.count, found.message_id) == (
        "lock_stolen", "critical", "ada", 2, id,
    )  # fmt: skip
    (again,) = await look(stage)
    assert again.count == 2


async def test_cases_that_could_not_be_recorded_are_recorded_by_a_later_tick(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process saves the same row before each attempt of the first tick."""
    await stage.publish()
    (late,) = (await stage.broker.claim("default", consumer="ada")).messages
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    (second,) = (await stage.broker.claim("default", consumer="bob")).messages
    with pytest.raises(LockLost):
        await stage.broker.complete(late)
    await stage.broker.complete(second)
    case = make_case(
        "lock_stolen", await stage.store.now(), queue_id=await stage.queue_id(), consumer="ada"
    )
    advance = stage.store.advance

    async def lose(change: Change) -> Changed | None:
        await advance(
            Change(saves=tuple(await add_stored(stage.store, stage.broker.directory, [case])))
        )
        return await advance(change)

    detector = AnomalyDetector(stage.store, stage.broker.directory, "a")
    monkeypatch.setattr(stage.store, "advance", lose)
    with pytest.raises(Busy, match="lock_stolen"):
        await detector.tick()
    monkeypatch.undo()
    (before,) = (await stage.broker.anomalies.list()).anomalies
    await detector.tick()
    await detector.tick()
    (after,) = (await stage.broker.anomalies.list()).anomalies
    assert after.count == before.count + 1


async def test_work_that_nobody_claims_misses_a_consumer(stage: Stage) -> None:
    await stage.publish()
    assert await look(stage) == []
    await stage.travel(61)
    (found,) = await look(stage)
    assert (found.kind, found.severity, found.queue) == ("no_consumer", "warning", "default")


async def test_workers_of_other_scopes_and_tenants_do_not_hide_a_missing_consumer(
    stage: Stage,
) -> None:
    await stage.publish()
    await stage.travel(61)
    await stage.broker.save_worker(WorkerInfo("a", "host", 1, ("default",), scope="billing"))
    await Broker(stage.store, tenant="acme").save_worker(WorkerInfo("b", "host", 1, ("default",)))
    assert [each.kind for each in await look(stage)] == ["no_consumer"]


@pytest.mark.parametrize("how", ["worker", "claimed", "worked", "paused", "off"])
async def test_a_queue_that_is_served_or_rests_misses_no_consumer(stage: Stage, how: str) -> None:
    await stage.publish_each(3)
    await stage.travel(61)
    if how == "worker":
        await stage.store.save_worker(WorkerInfo("w", "host", 1, ("default",)))
    elif how == "claimed":
        await stage.take(lease=600)
    elif how == "worked":
        await stage.broker.complete(await stage.take())
        await watch(stage)
    elif how == "paused":
        await stage.admin.set_state("default", QueueState.PAUSED)
    else:
        await stage.admin.set_queue("default", anomalies={"off": ["no_consumer"]})
    assert await look(stage) == []


async def test_an_export_without_progress_is_an_anomaly(stage: Stage) -> None:
    await stage.store.save_cursor("lake", Cursor())
    assert await look(stage) == []
    await stage.travel(DAY + 60)
    (found,) = await look(stage)
    assert (found.kind, found.consumer) == ("export_stalled", "lake")


async def test_the_historian_keeping_up_is_no_stalled_feed(stage: Stage) -> None:
    await stage.completed()
    await watch(stage)
    await stage.travel(120)
    await stage.completed()
    assert await look(stage) == []


async def test_a_routing_loop_is_an_anomaly_of_its_queue(stage: Stage) -> None:
    await stage.queue("other")
    there = {"name": "there", "queue": "default", "when": "true", "do": [{"route": "other"}]}
    back = {"name": "back", "queue": "other", "when": "true", "do": [{"route": "default"}]}
    for rule in (there, back):
        await stage.broker.rules.save(rule)
    await stage.publish_each(2)
    (found,) = await look(stage)
    assert (found.kind, found.severity, found.queue, found.consumer, found.count) == (
        "routing_loop", "warning", "default", "there", 2,
    )  # fmt: skip
    (again,) = await look(stage)
    assert again.count == 2


async def test_a_suspended_rule_is_an_anomaly_until_it_is_enabled(stage: Stage) -> None:
    rule = {"name": "r", "queue": "def*", "limit": 1, "do": [{"set": {"priority": 1}}]}
    await stage.broker.rules.save(rule)
    await stage.publish_each(2)
    await stage.broker.directory.policies.rules.save_suspensions()
    (found,) = await look(stage)
    assert (found.kind, found.severity, found.queue, found.consumer) == (
        "rule_suspended", "critical", "default", "r",
    )  # fmt: skip
    assert found.text == "rule r is suspended and no longer applied"
    await stage.broker.rules.enable("r")
    await stage.travel(61)
    await AnomalyDetector(stage.store, stage.broker.directory, "a").tick()
    assert [each.count for each in await look(stage) if each.kind == "rule_suspended"] == [1]
