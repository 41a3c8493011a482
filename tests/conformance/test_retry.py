"""How often a message runs, how long it waits between, and when it is dead."""

from typing import Any

import pytest

from penstock.model.message import Leased, Nack, Release, State
from penstock.model.settings import PRESETS
from tests.conformance.stage import LEASE_OVER, Stage, micros

pytestmark = pytest.mark.anyio

COUNTING = ("attempts", "deliveries")
LONG = 7_200.0


async def run_until_dead(stage: Stage, *, crash: bool) -> list[Leased]:
    """Each run of the only message of queue "work", ended by a nack or by a lost worker."""
    runs: list[Leased] = []
    while claimed := await stage.claim("work"):
        runs += claimed
        if not crash:
            await stage.broker.settle(claimed[0], Nack("no"))
        await stage.travel(LONG)
        await stage.sweep()
        await stage.travel(LONG)
        await stage.promote()
    return runs


@pytest.mark.parametrize("count", COUNTING)
@pytest.mark.parametrize("most", [1, 2, 5])
async def test_max_attempts_is_the_number_of_runs(stage: Stage, count: str, most: int) -> None:
    await stage.queue("work", max_attempts=most, retry={"count": count})
    id = await stage.publish(queue="work")
    runs = await run_until_dead(stage, crash=False)
    record = await stage.record(id)
    assert [leased.deliveries for leased in runs] == list(range(1, most + 1))
    assert await stage.counters(id) == (State.DEAD, most, most)
    assert (record.reason, record.error) == ("retries_exhausted", "no")


@pytest.mark.parametrize("count", COUNTING)
@pytest.mark.parametrize("on_expiry", ["count", "backoff"])
async def test_crashes_use_up_attempts_where_they_count(
    stage: Stage, count: str, on_expiry: str
) -> None:
    await stage.queue("work", max_attempts=3, retry={"count": count, "on_expiry": on_expiry})
    id = await stage.publish(queue="work")
    assert len(await run_until_dead(stage, crash=True)) == 3
    assert await stage.counters(id) == (State.DEAD, 3, 3)
    assert (await stage.record(id)).reason == "retries_exhausted"


async def test_crashes_that_do_not_count_end_at_max_deliveries(stage: Stage) -> None:
    await stage.queue("work", max_attempts=3)
    id = await stage.publish(queue="work")
    assert len(await run_until_dead(stage, crash=True)) == 6
    assert await stage.counters(id) == (State.DEAD, 0, 6)
    assert (await stage.record(id)).reason == "max_deliveries"


async def test_deliveries_bound_the_nacks_too(stage: Stage) -> None:
    await stage.queue("work", max_attempts=5, max_deliveries=2)
    id = await stage.publish(queue="work")
    assert len(await run_until_dead(stage, crash=False)) == 2
    assert (await stage.record(id)).reason == "max_deliveries"


@pytest.mark.parametrize(("fields", "runs"), [({"max_attempts": 2}, 2), ({"max_deliveries": 1}, 1)])
async def test_a_messages_own_limits_come_before_the_queues(
    stage: Stage, fields: dict[str, Any], runs: int
) -> None:
    await stage.queue("work", max_attempts=9)
    await stage.publish(queue="work", **fields)
    assert len(await run_until_dead(stage, crash=False)) == runs


async def test_a_message_may_crash_three_times_more_than_it_may_run(stage: Stage) -> None:
    await stage.queue("work", max_attempts=9)
    await stage.publish(queue="work", max_attempts=2)
    assert len(await run_until_dead(stage, crash=True)) == 5


async def test_a_nacks_own_limits_come_first(stage: Stage) -> None:
    await stage.queue("work")
    short, timed = await stage.publish_each(2, queue="work", max_attempts=9)
    held = await stage.claim("work", limit=2)
    await stage.travel(5)
    await stage.broker.settle(held[0], Nack("no", max_attempts=1))
    await stage.broker.settle(held[1], Nack("no", delay=10, max_total=12))
    for id in (short, timed):
        assert await stage.counters(id) == (State.DEAD, 1, 1)
        assert (await stage.record(id)).reason == "retries_exhausted"


async def test_released_deliveries_use_nothing_up(stage: Stage) -> None:
    await stage.queue("work", max_attempts=1, max_deliveries=1)
    id = await stage.publish(queue="work")
    for _ in range(5):
        await stage.broker.settle(await stage.take("work"), Release())
    await stage.broker.complete(await stage.take("work"))
    assert await stage.counters(id) == (State.COMPLETED, 1, 1)


PRESET_RUNS = [
    # preset, runs ended by nacks, runs ended by crashes
    ("default", 5, 8),
    ("scaiqueue", 5, 5),
    ("relay", 3, 3),
    ("codeq", 5, 5),
    ("faststream", 1, 8),
    ("queuectl", 3, 6),
]


def test_every_preset_is_tried() -> None:
    assert {name for name, *_ in PRESET_RUNS} == set(PRESETS)


@pytest.mark.parametrize(("preset", "nacks", "crashes"), PRESET_RUNS)
async def test_no_preset_loops_for_ever(
    stage: Stage, preset: str, nacks: int, crashes: int
) -> None:
    await stage.queue("work", preset)
    for crash, runs in ((False, nacks), (True, crashes)):
        id = await stage.publish(queue="work")
        assert len(await run_until_dead(stage, crash=crash)) == runs
        assert await stage.state(id) is State.DEAD


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ({"kind": "none", "jitter": "none"}, [0, 0, 0]),
        ({"kind": "constant", "initial": 7, "jitter": "none"}, [7, 7, 7]),
        ({"kind": "linear", "initial": 5, "step": 3, "jitter": "none"}, [5, 8, 11]),
        ({"kind": "exponential", "initial": 1, "factor": 3, "jitter": "none"}, [1, 3, 9]),
        ({"initial": 5, "factor": 10, "max": 60, "jitter": "none"}, [5, 50, 60]),
    ],
)
async def test_the_backoff_is_the_queues(
    stage: Stage, backoff: dict[str, object], delays: list[float]
) -> None:
    await stage.queue("work", backoff=backoff)
    id = await stage.publish(queue="work")
    assert [await waits(stage, id) for _ in delays] == delays


async def waits(stage: Stage, id: int) -> float:
    """Nacks the next run and says how long it has to wait, having waited."""
    leased, before = await stage.take("work"), await stage.store.now()
    await stage.broker.settle(leased, Nack())
    due_at = (await stage.record(id)).due_at or before
    wait = (due_at - before) / 1_000_000
    await stage.travel(wait + 0.001)
    await stage.promote()
    return round(wait)


@pytest.mark.parametrize(
    ("preset", "bounds"),
    [
        ("default", [(1, 2), (2, 4), (4, 8)]),
        ("scaiqueue", [(0, 2), (0, 4), (0, 8)]),
        ("relay", [(0, 0), (0, 0)]),
        ("codeq", [(0, 10), (0, 20), (0, 40)]),
        ("queuectl", [(2, 2), (4, 4)]),
    ],
)
async def test_a_preset_waits_as_its_system_does(
    stage: Stage, preset: str, bounds: list[tuple[float, float]]
) -> None:
    await stage.queue("work", preset)
    id = await stage.publish(queue="work")
    for least, most in bounds:
        assert least <= await waits(stage, id) <= most


async def test_codeq_brings_a_nacks_delay_into_range(stage: Stage) -> None:
    await stage.queue("work", "codeq")
    id = await stage.publish(queue="work")
    leased, before = await stage.take("work"), await stage.store.now()
    await stage.broker.settle(leased, Nack(delay=5_000))
    due_at = (await stage.record(id)).due_at
    assert due_at is not None
    assert before + micros(900) <= due_at <= await stage.store.now() + micros(900)


async def test_retries_end_when_their_whole_time_is_over(stage: Stage) -> None:
    backoff = {"kind": "constant", "initial": 10, "jitter": "none", "max_total": 25}
    await stage.queue("work", backoff=backoff)
    id = await stage.publish(queue="work")
    assert len(await nack_each_when_due(stage, 10.5)) == 3
    assert await stage.counters(id) == (State.DEAD, 3, 3)
    assert (await stage.record(id)).reason == "retries_exhausted"


async def test_a_redriven_message_has_its_whole_time_again(stage: Stage) -> None:
    backoff = {"kind": "constant", "initial": 10, "jitter": "none", "max_total": 15}
    await stage.queue("work", backoff=backoff)
    id = await stage.publish(queue="work")
    assert len(await nack_each_when_due(stage, 10.5)) == 2
    await stage.travel(LONG)
    await stage.admin.redrive(id)
    assert len(await nack_each_when_due(stage, 10.5)) == 2


async def nack_each_when_due(stage: Stage, wait: float) -> list[Leased]:
    runs: list[Leased] = []
    while claimed := await stage.claim("work"):
        runs += claimed
        await stage.broker.settle(claimed[0], Nack())
        await stage.travel(wait)
        await stage.promote()
    return runs


async def test_changed_settings_hold_from_the_next_failure_on(stage: Stage) -> None:
    await stage.queue("work", "queuectl")
    id = await stage.publish(queue="work")
    assert await waits(stage, id) == 2
    await stage.admin.set_queue("work", backoff={"factor": 5})
    assert await waits(stage, id) == 10


async def test_a_crash_and_a_nack_share_one_count(stage: Stage) -> None:
    await stage.queue("work", "relay")
    id = await stage.publish(queue="work")
    await stage.take("work")
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert len(await run_until_dead(stage, crash=False)) == 2
    assert await stage.counters(id) == (State.DEAD, 3, 3)


async def test_a_nack_is_answered_with_the_delay_of_the_retry(stage: Stage) -> None:
    await stage.queue("work")
    id = await stage.publish(queue="work")
    answer = await stage.broker.settle(await stage.take("work"), Nack("no", delay=7))
    assert (answer.delay, answer.due_at) == (7.0, (await stage.record(id)).due_at)
    await stage.travel(8)
    await stage.promote()
    answer = await stage.broker.settle(await stage.take("work"), Release())
    assert (answer.delay, answer.due_at) == (None, None)


async def test_a_nack_without_a_delay_ends_a_message_where_the_queue_says_so(stage: Stage) -> None:
    await stage.queue("work", retry={"on_nack": "dead"})
    ids = [await stage.publish(queue="work", max_attempts=most) for most in (None, None, 2)]
    for settlement in (Nack("no"), Nack("no", delay=5), Nack("no")):
        await stage.broker.settle(await stage.take("work"), settlement)
    states = [await stage.state(id) for id in ids]
    assert states == [State.DEAD, State.SCHEDULED, State.SCHEDULED]
