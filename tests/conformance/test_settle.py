"""What each settlement of a claimed message makes of it."""

import pytest

from penstock.model.message import Fail, Nack, Park, Release, SettleReject, State, Verb
from tests.conformance.acts import SETTLING
from tests.conformance.stage import DAY, LEASE_OVER, Stage, micros

pytestmark = pytest.mark.anyio

PLACES = {
    State.READY: "ready",
    State.SCHEDULED: "scheduled",
    State.DEAD: "dead",
    State.COMPLETED: "ended",
    State.FAILED: "ended",
    State.CANCELLED: "ended",
}


@pytest.mark.parametrize("name", SETTLING)
async def test_a_settlement_moves_the_message_once(stage: Stage, name: str) -> None:
    act, state = SETTLING[name]
    id = await stage.publish()
    answer = await act(stage.broker, await stage.take())
    assert answer.state in (None, state)
    assert await stage.state(id) is state
    assert await stage.places() == {PLACES[state]: 1}


@pytest.mark.parametrize("name", SETTLING)
async def test_a_settlement_is_remembered_in_one_row(stage: Stage, name: str) -> None:
    act, state = SETTLING[name]
    id = await stage.publish()
    leased, before = await stage.take(), await stage.store.now()
    await act(stage.broker, leased)
    (row,) = (await stage.record(id)).timeline
    assert (row.id, row.queue_id, row.state) == (id, leased.queue_id, state)
    assert (row.consumer, row.fence) == ("tester", leased.fence)
    assert row.claimed_at is not None
    assert row.claimed_at <= before <= row.at <= await stage.store.now()
    assert row.final is state.final


@pytest.mark.parametrize("name", SETTLING)
async def test_a_settled_message_has_no_lock_any_more(stage: Stage, name: str) -> None:
    id = await stage.publish()
    await SETTLING[name][0](stage.broker, await stage.take())
    record = await stage.record(id)
    assert (record.lease_until, record.percent, record.note) == (None, None, None)


async def test_complete_counts_one_attempt_and_one_delivery(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.complete(await stage.take())
    assert await stage.counters(id) == (State.COMPLETED, 1, 1)
    assert await stage.life(id) == [(Verb.COMPLETE, State.COMPLETED)]


@pytest.mark.parametrize("result", [None, b"", b"\x00result"])
async def test_a_result_can_be_read_by_its_id(stage: Stage, result: bytes | None) -> None:
    id = await stage.publish()
    await stage.broker.complete(await stage.take(), result)
    assert await stage.admin.result(id) == result


async def test_a_result_is_kept_as_long_as_its_queue_says(stage: Stage) -> None:
    await stage.queue("work", keep_results=DAY)
    id = await stage.publish(queue="work")
    await stage.broker.complete(await stage.take("work"), b"done")
    await stage.travel(DAY - 60)
    assert await stage.store.sweep_keys(100) == 0
    assert await stage.admin.result(id) == b"done"
    await stage.travel(120)
    await stage.store.sweep_keys(100)
    assert await stage.admin.result(id) is None


async def test_fail_is_final_and_not_among_the_dead(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.settle(await stage.take(), Fail("no such account"))
    record = await stage.record(id)
    assert (record.state, record.attempts, record.error) == (State.FAILED, 1, "no such account")
    assert await stage.places() == {"ended": 1}
    assert await stage.store.dead_counts() == {}


async def test_reject_is_dead_whatever_attempts_are_left(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.settle(await stage.take(), SettleReject("malformed"))
    record = await stage.record(id)
    assert (record.state, record.attempts, record.deliveries) == (State.DEAD, 1, 1)
    assert (record.reason, record.error) == ("rejected", "malformed")
    assert not (await stage.last(id)).final


async def test_a_nack_waits_for_its_delay(stage: Stage) -> None:
    id = await stage.publish()
    leased, before = await stage.take(), await stage.store.now()
    await stage.broker.settle(leased, Nack("timeout", delay=60))
    record = await stage.record(id)
    assert await stage.counters(id) == (State.SCHEDULED, 1, 1)
    assert record.error == "timeout"
    assert record.due_at is not None
    assert before + micros(60) <= record.due_at <= await stage.store.now() + micros(60)
    assert (await stage.last(id)).due_at == record.due_at
    assert await stage.claim() == []


async def test_a_nacked_message_comes_back_when_it_is_due(stage: Stage) -> None:
    id = await stage.publish(b"same")
    await stage.broker.settle(await stage.take(), Nack(delay=60))
    await stage.travel(50)
    assert await stage.promote() == 0
    await stage.travel(11)
    assert await stage.promote() == 1
    leased = await stage.take()
    assert (leased.id, leased.body, leased.attempts, leased.deliveries) == (id, b"same", 1, 2)
    assert leased.suspect


async def test_a_nack_without_delay_is_claimable_at_once(stage: Stage) -> None:
    await stage.publish()
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    assert (await stage.take()).attempts == 1


async def test_release_gives_the_delivery_back(stage: Stage) -> None:
    first, _ = await stage.publish_each(2)
    await stage.broker.settle(await stage.take(), Release())
    assert await stage.counters(first) == (State.READY, 0, 0)
    leased = await stage.take()
    assert (leased.id, leased.deliveries, leased.suspect) == (first, 1, False)


async def test_park_waits_longer_each_time_and_counts_nothing(stage: Stage) -> None:
    id = await stage.publish()
    for wait in (30, 60, 120, 240, 480, 600, 600):
        await stage.broker.settle(await stage.take(), Park())
        record = await stage.record(id)
        assert await stage.counters(id) == (State.SCHEDULED, 0, 0)
        assert record.reason == "UNKNOWN_TASK"
        await stage.travel(wait - 1)
        assert await stage.promote() == 0
        await stage.travel(2)
        assert await stage.promote() == 1


async def test_a_late_complete_holds_while_its_fence_stands(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.travel(10 * LEASE_OVER)
    await stage.broker.complete(leased)
    assert await stage.state(id) is State.COMPLETED
    assert await stage.sweep() == []


async def test_the_last_error_is_the_one_shown(stage: Stage) -> None:
    id = await stage.publish()
    for error in ("first", "second"):
        await stage.broker.settle(await stage.take(), Nack(error, delay=0))
    record = await stage.record(id)
    assert record.error == "second"
    assert [row.error for row in record.timeline] == ["first", "second"]


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nÄrger: é'


@pytest.mark.parametrize(
    ("settlement", "state"),
    [
        (Nack("Ärger", 0, traceback=TRACEBACK), State.READY),
        (Nack("Ärger", 60, traceback=TRACEBACK), State.SCHEDULED),
        (Nack("Ärger", max_attempts=1, traceback=TRACEBACK), State.DEAD),
        (Fail("Ärger", TRACEBACK), State.FAILED),
        (SettleReject("Ärger", TRACEBACK), State.DEAD),
    ],
)
async def test_a_traceback_is_kept_with_the_run_that_failed(
    stage: Stage, settlement: Nack | Fail | SettleReject, state: State
) -> None:
    ids = await stage.publish_each(2)
    first, other = await stage.claim(limit=2)
    answers = await stage.broker.settle_many([(first, settlement), (other, Nack("plain"))])
    assert answers[0].state is state
    row = await stage.last(ids[0])
    assert (row.error, row.traceback) == ("Ärger", TRACEBACK)
    assert (await stage.record(ids[0])).traceback == TRACEBACK
    assert (await stage.last(ids[1])).traceback is None


async def test_lists_and_feeds_leave_tracebacks_out(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.settle(await stage.take(), Nack("no", 0, traceback=TRACEBACK))
    (listed,) = await stage.broker.admin.find()
    assert [row.traceback for row in listed.timeline] == [None]
    assert [row.traceback for row in await stage.store.recent(0, 10)] == [None]
    assert (await stage.record(id)).traceback == TRACEBACK


async def test_a_long_traceback_keeps_its_end(stage: Stage) -> None:
    id = await stage.publish()
    long = "\n".join(f"line {n}" for n in range(10_000))
    await stage.broker.settle(await stage.take(), SettleReject("no", long))
    kept = (await stage.record(id)).traceback
    assert kept is not None
    assert len(kept) <= 8_192
    assert kept.startswith("...\nline ")
    assert kept.endswith("line 9998\nline 9999")


async def test_a_life_is_told_in_order(stage: Stage) -> None:
    id = await stage.publish()
    for settlement in (Release(), Nack("oops", delay=0), SettleReject("bad")):
        await stage.travel(1)
        await stage.broker.settle(await stage.take(), settlement)
    timeline = (await stage.record(id)).timeline
    assert [(row.verb, row.state) for row in timeline] == [
        (Verb.RELEASE, State.READY),
        (Verb.NACK, State.READY),
        (Verb.REJECT, State.DEAD),
    ]
    assert [(row.attempts, row.deliveries) for row in timeline] == [(0, 0), (1, 1), (2, 2)]
    assert [row.at for row in timeline] == sorted({row.at for row in timeline})
    assert [row.position for row in timeline] == sorted({row.position for row in timeline})
