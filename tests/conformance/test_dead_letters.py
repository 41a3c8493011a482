"""The dead: kept with their reason, claimed on `_dead_letter`, and redriven in place."""

import pytest

from penstock.errors import InvalidInput, InvalidState
from penstock.model.message import (
    Fail,
    Flag,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
    Verb,
)
from penstock.model.store_types import AnswerKind
from tests.conformance.stage import HOUR, LEASE_OVER, Stage

pytestmark = pytest.mark.anyio

LETTERS = "_dead_letter"


async def test_a_dead_letter_keeps_its_queue_reason_and_error(stage: Stage) -> None:
    await stage.queue("work")
    id = await stage.dead("work", labels={"a": "b"})
    (record,) = await stage.admin.find("work", state=State.DEAD)
    assert record == await stage.record(id)
    assert (record.message.queue_id, record.reason) == (await stage.queue_id("work"), "rejected")
    assert record.error == "no good"
    assert await stage.places("work") == {"dead": 1}
    assert await stage.store.dead_counts() == {record.message.queue_id: 1}


async def test_a_dead_message_is_not_handed_out_by_its_queue(stage: Stage) -> None:
    await stage.dead()
    await stage.travel(10_000)
    assert await stage.promote() == 0
    assert await stage.sweep() == []
    assert await stage.claim() == []


async def test_the_longest_dead_letter_comes_first_over_all_queues(stage: Stage) -> None:
    await stage.queue("work")
    late = await stage.publish(priority=9)
    ids = []
    for name in ("work", "work"):
        ids.append(await stage.dead(name))
        await stage.travel(1)
    await stage.broker.settle(await stage.take(), SettleReject())
    assert [leased.id for leased in await stage.claim(LETTERS, limit=9)] == [*ids, late]


async def test_dead_letters_of_chosen_queues_alone_are_claimed(stage: Stage) -> None:
    work, payroll = await stage.queue("work"), await stage.queue("payroll")
    hidden, wanted = await stage.dead("payroll"), await stage.dead("work")
    claim = stage.broker.claim
    taken = await claim(LETTERS, consumer="c", limit=9, dead_of=[work])
    assert [(each.id, bool(each.flags & Flag.FROM_DEAD)) for each in taken.messages] == [
        (wanted, True)
    ]
    assert (await claim(LETTERS, consumer="c", limit=9, dead_of=[])).messages == []
    assert (await stage.record(hidden)).state is State.DEAD
    taken = await claim(LETTERS, consumer="c", limit=9, dead_of=[payroll])
    assert [each.id for each in taken.messages] == [hidden]


async def test_the_longest_dead_letter_of_a_queue_comes_first(stage: Stage) -> None:
    await stage.publish_each(3)
    held = await stage.claim(limit=3)
    for leased in reversed(held):
        await stage.broker.settle(leased, SettleReject())
        await stage.travel(1)
    letters = [leased.id for leased in await stage.claim(LETTERS, limit=2)]
    assert letters == [held[2].id, held[1].id]


async def test_a_claimed_letter_is_the_message_with_its_counters_unchanged(stage: Stage) -> None:
    id = await stage.dead(labels={"a": "b"})
    leased = await stage.take(LETTERS, begins=True)
    record = await stage.record(id)
    assert (leased.id, leased.queue_id, leased.meta.labels) == (
        id,
        await stage.queue_id(),
        {"a": "b"},
    )
    assert (leased.attempts, leased.deliveries) == (1, 1)
    assert (record.state, record.deliveries, record.reason) == (State.CLAIMED, 1, "rejected")
    assert await stage.places() == {"lease": 1}
    assert await stage.claim(LETTERS) == []


async def test_a_completed_letter_is_completed(stage: Stage) -> None:
    id = await stage.dead()
    await stage.broker.complete(await stage.take(LETTERS), b"mended")
    assert await stage.state(id) is State.COMPLETED
    assert await stage.admin.result(id) == b"mended"
    assert await stage.places() == {"ended": 1}


async def test_a_failed_letter_is_failed(stage: Stage) -> None:
    id = await stage.dead()
    await stage.broker.settle(await stage.take(LETTERS), Fail("hopeless"))
    record = await stage.record(id)
    assert (record.state, record.error) == (State.FAILED, "hopeless")


@pytest.mark.parametrize(
    "settlement",
    [Nack("no"), Nack(delay=0), SettleReject("again"), Release(), Park(), SettleCancelled()],
)
async def test_a_letter_that_was_not_dealt_with_is_dead_as_before(
    stage: Stage, settlement: Settlement
) -> None:
    id = await stage.publish(max_attempts=1)
    await stage.broker.settle(await stage.take(), Nack("first"))
    await stage.broker.settle(await stage.take(LETTERS), settlement)
    record = await stage.record(id)
    assert (record.state, record.reason) == (State.DEAD, "retries_exhausted")
    assert record.error == (getattr(settlement, "error", None) or "first")
    assert (record.attempts, record.deliveries) == (1, 1)
    assert (await stage.life(id))[-1] == (settlement.verb, State.DEAD)


async def test_a_lost_letter_is_dead_as_before(stage: Stage) -> None:
    id = await stage.dead()
    await stage.take(LETTERS)
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    record = await stage.record(id)
    assert (record.state, record.reason, record.deliveries) == (State.DEAD, "rejected", 1)


async def test_a_letter_is_cancelled_only_by_force(stage: Stage) -> None:
    id = await stage.dead()
    leased = await stage.take(LETTERS)
    await stage.admin.cancel(id)
    await stage.broker.settle(leased, Release())
    assert await stage.state(id) is State.DEAD
    await stage.take(LETTERS)
    await stage.admin.cancel(id, force=True)
    assert await stage.state(id) is State.CANCELLED


async def test_a_letter_that_was_handed_back_keeps_its_place(stage: Stage) -> None:
    first = await stage.dead()
    await stage.travel(1)
    second = await stage.dead()
    await stage.travel(1)
    await stage.broker.settle(await stage.take(LETTERS), Release())
    assert [leased.id for leased in await stage.claim(LETTERS, limit=9)] == [first, second]


async def test_a_scope_sees_only_its_own_letters(stage: Stage) -> None:
    await stage.admin.create_scope("other")
    await stage.dead()
    taken = await stage.broker.claim(LETTERS, consumer="t", scope="other")
    assert taken.messages == []


async def test_letters_can_be_asked_for_by_type(stage: Stage) -> None:
    await stage.dead(type="mail")
    chat = await stage.dead(type="chat")
    taken = await stage.broker.claim((LETTERS, ["chat"]), consumer="t", limit=9)
    assert [leased.id for leased in taken.messages] == [chat]


async def test_a_redriven_message_starts_anew_in_its_place(stage: Stage) -> None:
    id = await stage.dead(body=b"body")
    later = await stage.publish()
    published = await stage.admin.redrive(id)
    record = await stage.record(id)
    assert published.id == id
    assert (record.state, record.attempts, record.deliveries) == (State.READY, 0, 0)
    assert (record.redrives, record.reason, record.error) == (1, None, None)
    assert await stage.life(id) == [(Verb.REJECT, State.DEAD), (Verb.REDRIVE, State.READY)]
    assert not (await stage.last(id)).final
    assert await stage.drain() == [id, later]


async def test_a_redriven_message_runs_as_often_again(stage: Stage) -> None:
    id = await stage.publish(max_attempts=2)
    for redrives in range(3):
        for _ in range(2):
            await stage.broker.settle(await stage.take(), Nack(delay=0))
        record = await stage.record(id)
        assert (record.state, record.attempts, record.redrives) == (State.DEAD, 2, redrives)
        await stage.admin.redrive(id)
    await stage.broker.complete(await stage.take())
    assert sum(row.final for row in (await stage.record(id)).timeline) == 1


@pytest.mark.parametrize("how", ["ready", "scheduled", "claimed"])
async def test_a_live_message_cannot_be_redriven(stage: Stage, how: str) -> None:
    id = await stage.publish(delay=60 if how == "scheduled" else 0)
    if how == "claimed":
        await stage.take()
    before = await stage.all(id)
    for body in (None, b"edited"):
        with pytest.raises(InvalidState, match=how):
            await stage.admin.redrive(id, body=body)
    assert [each.kind for each in await stage.store.redrive([id])] == [AnswerKind.INVALID]
    assert await stage.all(id) == before


async def test_a_letter_in_somebodys_hands_cannot_be_redriven(stage: Stage) -> None:
    id = await stage.dead()
    leased = await stage.take(LETTERS)
    before = await stage.all(id)
    for body in (None, b"edited"):
        with pytest.raises(InvalidState):
            await stage.admin.redrive(id, body=body)
    assert await stage.all(id) == before
    await stage.broker.complete(leased)


async def test_many_redrives_answer_each_for_itself(stage: Stage) -> None:
    dead, live = await stage.dead(), await stage.publish()
    answers = await stage.store.redrive([live, dead, 999, dead])
    assert [answer.kind for answer in answers] == [
        AnswerKind.INVALID,
        AnswerKind.DONE,
        AnswerKind.MISSING,
        AnswerKind.INVALID,
    ]
    assert await stage.places() == {"ready": 2}


async def test_purging_ends_the_dead(stage: Stage) -> None:
    ids = [await stage.dead() for _ in range(3)]
    assert await stage.admin.purge("default", "dead", limit=2) == 2
    assert await stage.admin.purge("default", "dead") == 1
    assert [await stage.state(id) for id in ids] == [State.CANCELLED] * 3
    assert await stage.store.dead_counts() == {}


async def test_one_dead_letter_is_purged_and_its_neighbours_stay(stage: Stage) -> None:
    first, second, live = await stage.dead(), await stage.dead(), await stage.publish()
    await stage.admin.purge_dead(first)
    for wrong in (first, live):
        with pytest.raises(InvalidState):
            await stage.admin.purge_dead(wrong)
    assert (await stage.admin.get(first)).reason == "purged"
    assert [await stage.state(id) for id in (first, second, live)] == [
        State.CANCELLED,
        State.DEAD,
        State.READY,
    ]


async def test_old_dead_letters_end_as_expired(stage: Stage) -> None:
    old = await stage.dead(ordering_key="k")
    await stage.travel(HOUR)
    queue_id, now = await stage.queue_id(), await stage.store.now()
    new = await stage.dead()
    assert await stage.store.expire_dead(queue_id, now, 10) == 1
    assert await stage.store.expire_dead(queue_id, now, 10) == 0
    record = await stage.admin.get(old)
    assert (record.state, record.reason) == (State.EXPIRED, "dead_retention")
    assert (await stage.admin.get(new)).state is State.DEAD


async def test_a_claimed_dead_letter_does_not_expire(stage: Stage) -> None:
    id = await stage.dead()
    await stage.take("_dead_letter")
    await stage.travel(HOUR)
    queue_id, now = await stage.queue_id(), await stage.store.now()
    assert await stage.store.expire_dead(queue_id, now, 10) == 0
    assert (await stage.admin.get(id)).state is State.CLAIMED


async def test_dead_letters_are_listed_under_their_queue(stage: Stage) -> None:
    await stage.queue("work")
    ids = [await stage.dead("work"), await stage.dead()]
    await stage.publish()
    assert [each.message.id for each in await stage.admin.find(LETTERS)] == ids[::-1]
    found = await stage.admin.find(LETTERS, state=State.DEAD, before=ids[1], limit=1)
    assert [each.message.id for each in found] == ids[:1]
    with pytest.raises(InvalidInput, match="are dead, not ready"):
        await stage.admin.find(LETTERS, state=State.READY)
