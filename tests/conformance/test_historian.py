"""Metrics and anomalies that agents derive from history, exactly once, on every store."""

import asyncio
from typing import Any

import pytest

from penstock.agents import historian
from penstock.agents.historian import Historian
from penstock.broker.metrics import accumulator
from penstock.broker.metrics.rows import (
    ANOMALY,
    BACKLOG_HOUR,
    CONSUMER_HOUR,
    QUEUE_HOUR,
    QUEUE_MINUTES,
    read_rows,
    read_state,
)
from penstock.model.anomalies import AnomalyRow
from penstock.model.message import Fail, Nack, Park, Release, SettleReject
from penstock.model.metrics import COUNTS, OTHER
from penstock.rules.anomalies import is_reported
from tests.conformance.stage import HOUR, LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def early_in_an_hour(stage: Stage) -> None:
    """So that no test crosses from one hour to the next by itself."""
    passed = await stage.store.now() / 1_000_000 % HOUR
    await stage.travel(HOUR - passed + 1)


async def watch(stage: Stage, by: str = "a") -> None:
    agent = Historian(stage.store, stage.broker.directory, by)
    while await agent.tick() < agent.every:
        pass


async def rows_of(stage: Stage, kind: str) -> list[tuple[str, Any]]:
    return await read_rows(stage.store, kind, "", "~", 10_000)


async def counts(stage: Stage) -> dict[str, int]:
    """All hours and types together, without those that are 0."""
    rows = [row.counts for _, row in await rows_of(stage, QUEUE_HOUR)]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    return {name: count for name, count in zip(COUNTS, sums, strict=True) if count}


async def anomalies(stage: Stage) -> dict[str, AnomalyRow]:
    rows = [row for _, row in await rows_of(stage, ANOMALY)]
    return {row.kind: row for row in rows if is_reported(row)}


async def test_metrics_are_what_happened(stage: Stage) -> None:
    await stage.queue("work", max_attempts=2, backoff={"kind": "none"})
    for _ in range(3):
        await stage.completed("work")
    await stage.dead("work")
    await stage.publish(queue="work")
    await stage.broker.settle(await stage.take("work"), Nack("no"))
    await stage.broker.settle(await stage.take("work"), Release())
    await stage.broker.settle(await stage.take("work"), Fail("never"))
    cancelled = await stage.publish(queue="work")
    await stage.admin.cancel(cancelled)
    await stage.publish(queue="work")
    await watch(stage)
    assert await counts(stage) == {
        "published": 7, "attempts": 6, "completed": 3, "failures": 3, "retried": 1, "failed": 1,
        "dead": 1, "cancelled": 1, "handed_back": 1, "flash": 3,
    }  # fmt: skip
    state, _ = await read_state(stage.store)
    totals = state.totals[await stage.queue_id("work")]
    assert (totals.unfinished, totals.dead) == (1, 1)
    places = await stage.places("work")
    assert (places["ready"], places["dead"]) == (1, 1)


async def test_what_was_counted_is_not_counted_again(stage: Stage) -> None:
    for expected in (2, 4, 6):
        await stage.completed()
        await stage.completed()
        await watch(stage, by=f"process {expected}")
        await stage.travel(5)
        assert (await counts(stage))["completed"] == expected


async def test_processes_that_count_at_once_count_once(stage: Stage) -> None:
    others = [await stage.another() for _ in range(3)]
    agents = [Historian(each.store, each.broker.directory, str(n)) for n, each in enumerate(others)]
    for _ in range(4):
        for _ in range(5):
            await stage.completed()
        # Without the tick of one, which elects a process: the guard alone must hold.
        for agent in agents:
            await agent.has_news()
        await asyncio.gather(*(agent.advance() for agent in agents))
    assert await counts(stage) == {"published": 20, "attempts": 20, "completed": 20, "flash": 20}


async def test_one_process_reads_history_while_others_only_look_whether_it_does(
    stage: Stage,
) -> None:
    counting, idle = (Historian(stage.store, stage.broker.directory, by) for by in "ab")
    await stage.completed()
    await counting.tick()
    assert not await idle.has_news()
    await stage.completed()
    await counting.tick()
    await stage.completed()
    assert not await idle.has_news()
    # The version is that of its last look: no other process counts.
    assert await idle.has_news()


async def test_it_rests_less_once_it_is_late(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(historian, "PAGE_SIZE", 1)
    monkeypatch.setattr(historian, "MAX_ROWS", 1)
    monkeypatch.setattr(historian, "REST_FACTOR", 1e6)
    monkeypatch.setattr(historian, "LATE_REST_FACTOR", 0)
    agent = Historian(stage.store, stage.broker.directory, "a")
    for _ in range(4):
        await stage.completed()
    assert await agent.tick() == agent.every
    await stage.travel(historian.LATE_S + 1)
    assert await agent.tick() == 0


async def test_what_was_not_written_is_counted_later(stage: Stage) -> None:
    await stage.completed()
    agent = Historian(stage.store, stage.broker.directory, "a")
    await agent.has_news()
    # Another process is faster.
    await watch(stage, by="b")
    await stage.completed()
    assert await agent.advance() == (0, False)
    await stage.travel(5)
    await agent.tick()
    assert (await counts(stage))["completed"] == 2


async def test_nothing_is_written_while_nothing_happens(stage: Stage) -> None:
    await stage.completed()
    await watch(stage)
    # MariaDB's feed tidies up once after the last writer.
    await watch(stage)
    await stage.travel(HOUR)
    before = stage.version()
    await watch(stage)
    assert stage.version() == before


async def test_an_hour_and_its_minutes_agree(stage: Stage) -> None:
    for _ in range(4):
        await stage.completed()
        await stage.travel(61)
    await watch(stage)
    hours, minutes = await rows_of(stage, QUEUE_HOUR), await rows_of(stage, QUEUE_MINUTES)
    for (name, hour), (same, rows) in zip(hours, minutes, strict=True):
        assert name == same
        assert hour.counts == [
            sum(column) for column in zip(*(row[: len(COUNTS)] for row in rows.values()),
                                          strict=True)
        ]  # fmt: skip


async def test_the_backlog_of_an_hour_begins_with_that_of_the_one_before(stage: Stage) -> None:
    for _ in range(3):
        await stage.publish()
        await watch(stage)
        await stage.travel(HOUR)
    rows = [row for _, row in await rows_of(stage, BACKLOG_HOUR)]
    assert [(row.unfinished, row.arrived, row.left) for row in rows] == [
        (0, 1, 0), (1, 1, 0), (2, 1, 0),
    ]  # fmt: skip


async def test_consumers_have_what_they_did(stage: Stage) -> None:
    for consumer, count in (("ada", 3), ("bob", 2)):
        await stage.publish_each(count)
        claimed = await stage.broker.claim("default", limit=count, consumer=consumer)
        first, *others = claimed.messages
        await stage.broker.settle(first, SettleReject("no"))
        for each in others:
            await stage.broker.complete(each)
    await watch(stage)
    found = {name.split("/")[-1]: row for name, row in await rows_of(stage, CONSUMER_HOUR)}
    assert {name: (row.attempts, row.completed, row.failures) for name, row in found.items()} == {
        "ada": (3, 2, 1),
        "bob": (2, 1, 1),
    }


async def test_types_beyond_the_limit_are_counted_together(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "MAX_TYPES_PER_QUEUE", 2)
    for number in range(4):
        await stage.publish(type=f"t{number}")
        await watch(stage, by=str(number))
        await stage.travel(3)
    names = [name.split("/")[-1] for name, _ in await rows_of(stage, QUEUE_HOUR)]
    assert names == [OTHER, "t0", "t1"]
    assert await counts(stage) == {"published": 4}
    state, _ = await read_state(stage.store)
    assert list(state.limited) == [f"types of queue {await stage.queue_id()}"]


async def relay(stage: Stage) -> None:
    await stage.queue("work", preset_name="relay")


async def test_anomalies_of_a_message_that_ends_among_the_dead_letters(stage: Stage) -> None:
    await relay(stage)
    id = await stage.publish(queue="work")
    seen = []
    for _ in range(3):
        await stage.broker.settle(await stage.take("work"), Nack("no"))
        await watch(stage)
        seen.append(sorted(await anomalies(stage)))
        await stage.travel(3)
    assert seen == [[], ["near_dlq"], ["dlq_movement", "near_dlq"]]
    found = (await anomalies(stage))["dlq_movement"]
    assert (found.severity, found.count, found.message_id) == ("critical", 1, id)


async def test_an_anomaly_counts_its_cases_and_names_the_worst(stage: Stage) -> None:
    await stage.publish(b"x" * 5_001)
    worst = await stage.publish(b"x" * 9_000)
    await stage.publish(b"x" * 5_000)
    await stage.drain()
    await watch(stage)
    (row,) = (await anomalies(stage)).values()
    assert (row.kind, row.count, row.value, row.threshold, row.message_id) == (
        "large_payload", 2, 9_000, 5_000, worst,
    )  # fmt: skip


@pytest.mark.parametrize("preset", ["default", "relay"])
async def test_kinds_that_are_normal_for_many_are_on_in_the_preset_relay(
    stage: Stage, preset: str
) -> None:
    await stage.queue("work", preset_name=preset)
    await stage.publish_each(60, queue="work")
    claimed = await stage.broker.claim("work", limit=60, consumer="ada")
    for each in claimed.messages:
        await stage.broker.complete(each)
    await watch(stage)
    found = {kind: row.count for kind, row in (await anomalies(stage)).items()}
    quiet = {"bulk_enqueue": 60, "burst_dequeue": 60, "flash_message": 60}
    assert found == (quiet if preset == "relay" else {})


async def test_runs_that_were_long_or_lost(stage: Stage) -> None:
    await relay(stage)
    await stage.publish(queue="work")
    leased = await stage.take("work", lease=200)
    await stage.travel(11)
    await stage.broker.complete(leased)
    await stage.publish(queue="work")
    await stage.take("work")
    await stage.travel(4 * LEASE_OVER)
    await stage.sweep()
    await watch(stage)
    found = await anomalies(stage)
    assert set(found) == {"long_processing", "lost_lease", "zombie_message"}
    assert found["long_processing"].count == 2


async def test_a_consumer_that_loses_all_its_leases_is_stuck_until_it_completes(
    stage: Stage,
) -> None:
    await stage.queue("work", anomalies={"off": ["lost_lease", "long_processing"]})
    for _ in range(3):
        await stage.publish(queue="work")
        await stage.take("work")
        await stage.travel(LEASE_OVER)
        await stage.sweep()
        await stage.admin.purge("work", "ready")
    await watch(stage)
    assert (await anomalies(stage))["stuck_consumer"].consumer == "tester"
    await stage.completed("work")
    await stage.travel(3)
    await watch(stage, by="b")
    assert "stuck_consumer" not in await anomalies(stage)


async def test_a_message_that_fails_alike_on_two_consumers_is_poison(stage: Stage) -> None:
    await stage.queue("work", backoff={"kind": "none"})
    await stage.publish(queue="work")
    for number, consumer in enumerate(("ada", "bob", "ada")):
        claimed = await stage.broker.claim("work", consumer=consumer)
        await stage.broker.settle(claimed.messages[0], Nack(f"no answer after {number} ms"))
    await watch(stage)
    assert (await anomalies(stage))["poison_message"].value == 3


async def test_unknown_tasks_and_cleared_queues_are_anomalies(stage: Stage) -> None:
    await stage.publish(type="strange")
    await stage.broker.settle(await stage.take(), Park())
    await stage.publish_each(12)
    await stage.admin.purge("default", "ready", "scheduled")
    await watch(stage)
    found = await anomalies(stage)
    assert {kind: (row.type, row.count) for kind, row in found.items()} == {
        "unknown_task": ("strange", 1),
        "bulk_delete": ("message", 12),
        "queue_cleared": ("", 1),
    }


async def test_thresholds_and_switches_of_a_queue_are_kept(stage: Stage) -> None:
    settings = {"off": ["dlq_movement"], "thresholds": {"payload_over": 10}}
    await stage.queue("work", anomalies=settings)
    await stage.publish(b"x" * 11, queue="work")
    await stage.drain("work")
    await stage.dead("work")
    await watch(stage)
    assert {kind: row.threshold for kind, row in (await anomalies(stage)).items()} == {
        "large_payload": 10
    }


async def test_moves_to_another_queue_are_an_anomaly(stage: Stage) -> None:
    await stage.queue("work")
    for id in await stage.publish_each(10):
        await stage.admin.move(id, "work")
    await watch(stage)
    found = await anomalies(stage)
    assert {kind: (row.severity, row.count) for kind, row in found.items()} == {
        "bulk_move": ("info", 10)
    }
