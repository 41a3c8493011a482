"""A call under a fence that is not the current one changes nothing."""

import anyio
import pytest

from penstock.errors import InvalidState, LockLost, NotFound
from penstock.model.message import (
    Fail,
    Leased,
    Nack,
    Release,
    Settlement,
    SettleReject,
    State,
    Verb,
)
from penstock.model.store_types import AnswerKind, Lock
from tests.conformance.acts import ACTS, SETTLING
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def lost(stage: Stage) -> Leased:
    """A lock whose message was taken from it, and is ready again."""
    await stage.publish(labels={"a": "b"})
    leased = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    return leased


@pytest.mark.parametrize("name", ACTS)
async def test_a_stale_fence_changes_nothing(stage: Stage, name: str) -> None:
    stale = await lost(stage)
    current = await stage.take()
    before = await stage.all(stale.id)
    with pytest.raises(LockLost, match=str(stale.id)):
        await ACTS[name](stage.broker, stale)
    assert await stage.all(stale.id) == before
    assert await stage.admin.result(stale.id) is None
    await stage.broker.complete(current)


async def test_a_stale_fence_reads_no_lease(stage: Stage) -> None:
    stale = await lost(stage)
    current = await stage.take()
    locks = [Lock(stale.id, stale.fence), Lock(current.id, current.fence)]
    leases = await stage.store.leases(locks)
    assert [lease and lease.fence for lease in leases] == [None, current.fence]


@pytest.mark.parametrize("name", ACTS)
async def test_a_fence_that_lost_its_message_learns_so(stage: Stage, name: str) -> None:
    stale = await lost(stage)
    before = await stage.all(stale.id)
    with pytest.raises(LockLost):
        await ACTS[name](stage.broker, stale)
    assert await stage.all(stale.id) == before


@pytest.mark.parametrize("name", ACTS)
async def test_a_fence_that_never_was_holds_nothing(stage: Stage, name: str) -> None:
    id = await stage.publish()
    leased = await stage.take()
    before = await stage.all(id)
    for fence in (leased.fence - 1, leased.fence + 1, 2**62):
        with pytest.raises(LockLost):
            await ACTS[name](stage.broker, Lock(id, fence))
    assert await stage.all(id) == before


@pytest.mark.parametrize("name", ACTS)
async def test_a_message_that_is_not_claimed_cannot_be_settled(stage: Stage, name: str) -> None:
    ready, waiting = await stage.publish(), await stage.publish(delay=60)
    before = await stage.all(ready, waiting)
    for id in (ready, waiting):
        with pytest.raises(InvalidState, match=str(id)):
            await ACTS[name](stage.broker, Lock(id, 12_345))
    assert await stage.all(ready, waiting) == before


@pytest.mark.parametrize("name", ACTS)
async def test_an_ended_message_cannot_be_settled(stage: Stage, name: str) -> None:
    done, dead = await stage.completed(), await stage.dead()
    before = await stage.all(done, dead)
    for id in (done, dead):
        with pytest.raises(InvalidState):
            await ACTS[name](stage.broker, Lock(id, 12_345))
    assert await stage.all(done, dead) == before


@pytest.mark.parametrize("name", ACTS)
async def test_an_unknown_message_is_not_found(stage: Stage, name: str) -> None:
    before = await stage.all()
    for id in (1, 999_999_999, 2**63 - 1):
        with pytest.raises(NotFound, match=str(id)):
            await ACTS[name](stage.broker, Lock(id, 1))
    assert await stage.all() == before


@pytest.mark.parametrize("name", SETTLING)
async def test_a_repeated_settlement_learns_that_it_had_won(stage: Stage, name: str) -> None:
    act, state = SETTLING[name]
    id = await stage.publish()
    leased = await stage.take()
    assert (await act(stage.broker, leased)).kind is AnswerKind.DONE
    before = await stage.all(id)
    answer = await act(stage.broker, leased)
    assert (answer.kind, answer.state) == (AnswerKind.ALREADY, state)
    assert await stage.all(id) == before


async def test_a_repeated_nack_learns_that_it_led_to_the_dead(stage: Stage) -> None:
    await stage.publish(max_attempts=1)
    leased = await stage.take()
    await stage.broker.settle(leased, Nack("no"))
    answer = await stage.broker.settle(leased, Nack("no"))
    assert (answer.kind, answer.state) == (AnswerKind.ALREADY, State.DEAD)


async def test_a_repeated_nack_learns_so_though_somebody_else_has_the_message(
    stage: Stage,
) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.settle(leased, Nack(delay=0))
    await stage.take()
    before = await stage.all(id)
    answer = await stage.broker.settle(leased, Nack(delay=0))
    assert (answer.kind, answer.state) == (AnswerKind.ALREADY, State.READY)
    assert await stage.all(id) == before


@pytest.mark.parametrize("name", [name for name in ACTS if name != "complete"])
async def test_a_completed_message_takes_no_second_verdict(stage: Stage, name: str) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.complete(leased, b"result")
    before = await stage.all(id)
    with pytest.raises(LockLost):
        await ACTS[name](stage.broker, leased)
    assert await stage.all(id) == before
    assert await stage.admin.result(id) == b"result"


async def test_a_repeated_complete_does_not_change_the_result(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.broker.complete(leased, b"first")
    await stage.broker.complete(leased, b"second")
    assert await stage.admin.result(id) == b"first"


async def test_a_lock_of_one_message_opens_no_other(stage: Stage) -> None:
    first, second = await stage.publish_each(2)
    leased = await stage.take()
    await stage.take()
    with pytest.raises(LockLost):
        await stage.broker.complete(Lock(second, leased.fence))
    assert await stage.state(second) is State.CLAIMED
    await stage.broker.complete(Lock(first, leased.fence))


@pytest.mark.parametrize("name", SETTLING)
async def test_of_two_that_settle_at_once_one_wins(stage: Stage, name: str) -> None:
    id = await stage.publish()
    leased = await stage.take()
    kinds: list[AnswerKind] = []

    async def settle(at: Stage) -> None:
        kinds.append((await SETTLING[name][0](at.broker, leased)).kind)

    async with anyio.create_task_group() as tasks:
        for at in (stage, stage, await stage.another()):
            tasks.start_soon(settle, at)
    assert sorted(kinds) == [AnswerKind.ALREADY, AnswerKind.ALREADY, AnswerKind.DONE]
    assert len(await stage.life(id)) == 1


@pytest.mark.parametrize("settlement", [Nack(delay=0), Release(), SettleReject("bad"), Fail("bad")])
async def test_a_decision_about_a_lease_that_is_gone_is_void(
    stage: Stage, settlement: Settlement
) -> None:
    id = await stage.publish()
    leased = await stage.take()
    (lease,) = await stage.store.leases([Lock(id, leased.fence)])
    assert lease is not None
    move = await stage.decide(lease, settlement)
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    current = await stage.take()
    before = await stage.all(id)
    (answer,) = await stage.store.settle([move])
    assert answer.kind is AnswerKind.LOST
    assert await stage.all(id) == before
    await stage.broker.complete(current)


async def test_the_store_itself_answers_why(stage: Stage) -> None:
    done = await stage.completed()
    stale = await lost(stage)
    waiting = await stage.publish(delay=9)
    locks = [Lock(stale.id, stale.fence), Lock(done, 10**9), Lock(waiting, 1), Lock(10**9, 1)]
    assert await stage.store.leases(locks) == [None] * 4
    answers = await stage.store.explain(locks, [Verb.NACK] * 4)
    assert [answer.kind for answer in answers] == [
        AnswerKind.LOST,
        AnswerKind.INVALID,
        AnswerKind.INVALID,
        AnswerKind.MISSING,
    ]
