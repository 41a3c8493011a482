"""Cancelling: at once while nobody has the message, by request or by force when somebody does."""

import anyio
import pytest

from penstock.errors import InvalidState, LockLost, NotFound
from penstock.model.message import (
    Fail,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
    Verb,
)
from penstock.model.store_types import AnswerKind, Lock
from tests.conformance.acts import ACTS
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def test_a_waiting_message_is_cancelled_at_once(stage: Stage) -> None:
    ready, waiting = await stage.publish(), await stage.publish(delay=60)
    for id in (ready, waiting):
        answer = await stage.admin.cancel(id)
        assert (answer.kind, answer.state) == (AnswerKind.DONE, State.CANCELLED)
        assert await stage.life(id) == [(Verb.CANCEL, State.CANCELLED)]
        assert (await stage.last(id)).final
    assert await stage.places() == {"ended": 2}
    assert await stage.claim() == []


async def test_a_message_moved_by_aging_is_cancelled_too(stage: Stage) -> None:
    await stage.queue("work", aging=True)
    old = await stage.publish(queue="work")
    high = await stage.publish(queue="work", priority=9)
    await stage.travel(600)
    await stage.store.age(await stage.queue_id("work"), 300, 10)
    await stage.admin.cancel(old)
    assert await stage.state(old) is State.CANCELLED
    assert await stage.drain("work") == [high]


async def test_a_claimed_message_is_only_asked_to_stop(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    assert not (await stage.broker.extend(leased, 30)).cancel_requested
    answer = await stage.admin.cancel(id)
    record = await stage.record(id)
    assert (answer.state, answer.cancel_requested) == (State.CLAIMED, True)
    assert (record.state, record.cancel_requested) == (State.CLAIMED, True)
    assert (await stage.broker.extend(leased, 30)).cancel_requested
    assert await stage.life(id) == []


@pytest.mark.parametrize(
    ("settlement", "state"),
    [
        (Nack("no", delay=60), State.CANCELLED),
        (Nack("no", delay=0), State.CANCELLED),
        (Release(), State.CANCELLED),
        (Park(), State.CANCELLED),
        (SettleCancelled("stopped"), State.CANCELLED),
        (Fail("broken"), State.FAILED),
        (SettleReject("bad"), State.DEAD),
    ],
)
async def test_a_requested_cancel_ends_what_would_run_again(
    stage: Stage, settlement: Settlement, state: State
) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.admin.cancel(id)
    await stage.broker.settle(leased, settlement)
    assert await stage.life(id) == [(settlement.verb, state)]
    assert await stage.state(id) is state


async def test_a_completed_message_is_completed_though_a_cancel_was_requested(
    stage: Stage,
) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.admin.cancel(id)
    await stage.broker.complete(leased, b"done")
    assert await stage.counters(id) == (State.COMPLETED, 1, 1)
    assert await stage.admin.result(id) == b"done"


async def test_a_lost_message_whose_cancel_was_requested_is_cancelled(stage: Stage) -> None:
    id = await stage.publish()
    await stage.take()
    await stage.admin.cancel(id)
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.life(id) == [(Verb.RECLAIM, State.CANCELLED)]
    assert await stage.claim() == []


async def test_a_redriven_message_has_forgotten_its_cancel_request(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.admin.cancel(id)
    await stage.broker.settle(leased, SettleReject())
    await stage.admin.redrive(id)
    await stage.broker.settle(await stage.take(), Release())
    assert await stage.state(id) is State.READY


@pytest.mark.parametrize("name", ACTS)
async def test_force_ends_it_now_and_voids_the_fence(stage: Stage, name: str) -> None:
    id = await stage.publish()
    leased = await stage.take()
    answer = await stage.admin.cancel(id, force=True)
    assert (answer.kind, answer.state) == (AnswerKind.DONE, State.CANCELLED)
    before = await stage.all(id)
    if name == "cancelled":
        # It asks for what was done.
        return
    with pytest.raises(LockLost):
        await ACTS[name](stage.broker, leased)
    assert await stage.all(id) == before


async def test_a_forced_cancel_remembers_whose_delivery_it_ended(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.admin.cancel(id, force=True)
    row = await stage.last(id)
    assert (row.verb, row.state, row.final) == (Verb.CANCEL, State.CANCELLED, True)
    assert (row.consumer, row.fence) == ("tester", leased.fence)


async def test_force_on_a_waiting_message_is_a_cancel(stage: Stage) -> None:
    id = await stage.publish()
    await stage.admin.cancel(id, force=True)
    assert await stage.state(id) is State.CANCELLED


@pytest.mark.parametrize("force", [False, True])
async def test_an_ended_or_dead_message_cannot_be_cancelled(stage: Stage, force: bool) -> None:
    done, dead = await stage.completed(), await stage.dead()
    before = await stage.all(done, dead)
    for id in (done, dead):
        with pytest.raises(InvalidState, match=str(id)):
            await stage.admin.cancel(id, force=force)
    assert await stage.all(done, dead) == before


async def test_an_unknown_message_cannot_be_cancelled(stage: Stage) -> None:
    with pytest.raises(NotFound):
        await stage.admin.cancel(999)


async def test_each_of_a_batch_answers_for_itself(stage: Stage) -> None:
    done = await stage.completed()
    ready, held = await stage.publish(priority=1), await stage.publish(priority=2)
    await stage.take()
    answers = await stage.store.cancel([done, ready, 999, held, ready])
    assert [(answer.kind, answer.state) for answer in answers] == [
        (AnswerKind.INVALID, State.COMPLETED),
        (AnswerKind.DONE, State.CANCELLED),
        (AnswerKind.MISSING, None),
        (AnswerKind.DONE, State.CLAIMED),
        (AnswerKind.INVALID, State.CANCELLED),
    ]


async def test_a_rule_that_did_not_see_the_request_has_to_decide_again(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    (lease,) = await stage.store.leases([Lock(id, leased.fence)])
    assert lease is not None
    move = await stage.decide(lease, Nack(delay=0))
    await stage.admin.cancel(id)
    before = await stage.all(id)
    (answer,) = await stage.store.settle([move])
    assert answer.kind is AnswerKind.CHANGED
    assert await stage.all(id) == before


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("settlement", [None, Nack(delay=0), Nack(delay=9), Release()])
async def test_a_cancel_and_a_settlement_at_once_end_it_once(
    stage: Stage, settlement: Settlement | None, force: bool
) -> None:
    other = await stage.another()
    ids = await stage.publish_each(10)
    held = await stage.claim(limit=10)

    async def cancel(id: int) -> None:
        try:
            await other.admin.cancel(id, force=force)
        except InvalidState:
            assert settlement is None

    async def settle(lock: Lock) -> None:
        try:
            if settlement is None:
                await stage.broker.complete(lock)
            else:
                await stage.broker.settle(lock, settlement)
        except LockLost:
            assert force

    async with anyio.create_task_group() as tasks:
        for leased in held:
            tasks.start_soon(settle, Lock(leased.id, leased.fence))
            tasks.start_soon(cancel, leased.id)
    states = {await stage.state(id) for id in ids}
    assert states <= {State.CANCELLED, State.COMPLETED}
    assert settlement is None or states == {State.CANCELLED}
    assert await stage.places() == {"ended": 10}
