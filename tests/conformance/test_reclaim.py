"""What becomes of a message whose lease ran out."""

import anyio
import pytest

from penstock.errors import LockLost
from penstock.model.message import State, Verb
from penstock.model.store_types import AnswerKind, Extension
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def overdue(stage: Stage, queue: str = "default", count: int = 1) -> list[int]:
    """Messages whose worker is gone and whose lease is over."""
    ids = await stage.publish_each(count, queue=queue)
    assert len(await stage.claim(queue, limit=count, lease=30)) == count
    await stage.travel(LEASE_OVER)
    return ids


async def test_a_lost_message_is_claimable_again_with_nothing_left_of_its_lock(
    stage: Stage,
) -> None:
    id = await stage.publish(b"payload")
    await stage.take()
    await stage.travel(LEASE_OVER)
    assert [answer.kind for answer in await stage.sweep()] == [AnswerKind.DONE]
    record = await stage.record(id)
    assert (record.state, record.attempts, record.deliveries) == (State.READY, 0, 1)
    assert (record.lease_until, record.consumer) == (None, None)
    assert (record.reason, record.error) == ("LEASE_EXPIRED", "LEASE_EXPIRED")
    assert (await stage.take()).body == b"payload"


async def test_a_reclaim_is_remembered_with_the_consumer_that_was_lost(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    row = await stage.last(id)
    assert (row.verb, row.state, row.consumer) == (Verb.RECLAIM, State.READY, "tester")
    assert (row.fence, row.final, row.error) == (leased.fence, False, "LEASE_EXPIRED")


@pytest.mark.parametrize(
    ("on_expiry", "state", "attempts"),
    [("keep", State.READY, 0), ("count", State.READY, 1), ("backoff", State.SCHEDULED, 1)],
)
async def test_the_queue_says_what_an_expired_lease_costs(
    stage: Stage, on_expiry: str, state: State, attempts: int
) -> None:
    await stage.queue("work", retry={"on_expiry": on_expiry})
    (id,) = await overdue(stage, "work")
    await stage.sweep()
    assert await stage.counters(id) == (state, attempts, 1)
    assert (await stage.record(id)).reason == "LEASE_EXPIRED"


async def test_a_lease_that_is_not_over_is_left_alone(stage: Stage) -> None:
    id = await stage.publish()
    await stage.take()
    await stage.travel(25)
    assert (await stage.store.expired_leases(10)).leases == []
    assert await stage.state(id) is State.CLAIMED


async def test_an_extended_lease_is_left_alone(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.travel(20)
    await stage.broker.extend(leased, 30)
    await stage.travel(20)
    assert await stage.sweep() == []
    assert await stage.state(id) is State.CLAIMED


async def test_an_overdue_lease_can_still_be_extended(stage: Stage) -> None:
    (id,) = await overdue(stage)
    fence = (await stage.store.expired_leases(10)).leases[0].fence
    answers = await stage.broker.extend_many([Extension(id, fence, 30)])
    assert [answer.kind for answer in answers] == [AnswerKind.DONE]
    assert await stage.sweep() == []


async def test_an_extend_between_look_and_reclaim_wins(stage: Stage) -> None:
    (id,) = await overdue(stage)
    (move,) = await stage.reclaims()
    await stage.broker.extend_many([Extension(id, move.fence, 30)])
    before = await stage.all(id)
    (answer,) = await stage.store.settle([move])
    assert answer.kind is not AnswerKind.DONE
    assert await stage.all(id) == before


async def test_a_complete_between_look_and_reclaim_wins(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.travel(LEASE_OVER)
    moves = await stage.reclaims()
    await stage.broker.complete(leased)
    (answer,) = await stage.store.settle(moves)
    assert answer.kind is not AnswerKind.DONE
    assert await stage.life(id) == [(Verb.COMPLETE, State.COMPLETED)]


async def test_a_new_claim_between_look_and_reclaim_is_safe(stage: Stage) -> None:
    await overdue(stage)
    moves = await stage.reclaims()
    await stage.sweep()
    leased = await stage.take()
    (answer,) = await stage.store.settle(moves)
    assert answer.kind is not AnswerKind.DONE
    await stage.broker.complete(leased)


async def test_two_sweeps_at_once_reclaim_once(stage: Stage) -> None:
    ids = await overdue(stage, count=20)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon((await stage.another()).sweep)
    assert [await stage.life(id) for id in ids] == [[(Verb.RECLAIM, State.READY)]] * 20
    assert await stage.places() == {"ready": 20}


async def test_a_sweep_is_bounded_and_begins_with_the_longest_overdue(stage: Stage) -> None:
    first = await overdue(stage, count=3)
    await overdue(stage, count=3)
    sweep = await stage.store.expired_leases(3)
    assert sorted(lease.id for lease in sweep.leases) == first
    assert len(await stage.sweep(2)) == 2
    assert await stage.places() == {"ready": 2, "lease": 4}


async def test_a_lost_worker_is_told_so(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    with pytest.raises(LockLost):
        await stage.broker.complete(leased)
    with pytest.raises(LockLost):
        await stage.broker.extend(leased, 30)


async def test_a_sweep_tells_a_rule_all_it_needs(stage: Stage) -> None:
    id = await stage.publish(max_attempts=7, labels={"a": "b"})
    leased = await stage.take()
    await stage.travel(LEASE_OVER)
    sweep = await stage.store.expired_leases(10)
    (lease,) = sweep.leases
    assert (lease.id, lease.fence, lease.queue_id) == (id, leased.fence, leased.queue_id)
    assert (lease.attempts, lease.deliveries, lease.parked, lease.dead_reason) == (0, 1, 0, None)
    assert (lease.meta, lease.lease_until) == (leased.meta, leased.lease_until)
    assert lease.first_claimed_at == lease.claimed_at < lease.lease_until < lease.now
    assert sweep.now == lease.now
