"""A message that kills its workers stops; its prefetched neighbours do not suffer."""

import pytest

from penstock.model.message import Draft, Nack, State
from penstock.model.store_types import Completion, Extension
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio


async def suspect(stage: Stage) -> int:
    """A message that was delivered once and did not come back."""
    id = await stage.publish()
    await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    return id


async def test_a_second_delivery_is_suspect(stage: Stage) -> None:
    id = await suspect(stage)
    leased = await stage.take(begins=True)
    assert (leased.id, leased.deliveries, leased.suspect) == (id, 2, True)


async def test_a_suspect_that_was_not_begun_gets_its_delivery_back(stage: Stage) -> None:
    id = await suspect(stage)
    for _ in range(20):
        await stage.take(begins=True)
        await stage.travel(LEASE_OVER)
        await stage.sweep()
        assert await stage.counters(id) == (State.READY, 0, 1)


async def test_a_suspect_that_was_begun_does_not(stage: Stage) -> None:
    id = await suspect(stage)
    await stage.broker.begin(await stage.take(begins=True))
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.counters(id) == (State.READY, 0, 2)


async def test_only_a_consumer_that_promised_to_begin_is_believed(stage: Stage) -> None:
    id = await suspect(stage)
    await stage.take(begins=False)
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.counters(id) == (State.READY, 0, 2)


@pytest.mark.parametrize(("begins", "deliveries"), [(True, 1), (False, 2)])
async def test_a_claim_by_type_counts_and_believes_alike(
    stage: Stage, begins: bool, deliveries: int
) -> None:
    id = await suspect(stage)
    taken = await stage.broker.claim(("default", [Draft().type]), consumer="t", begins=begins)
    assert [leased.deliveries for leased in taken.messages] == [2]
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.counters(id) == (State.READY, 0, deliveries)


async def test_a_first_delivery_is_not_given_back(stage: Stage) -> None:
    id = await stage.publish()
    await stage.take(begins=True)
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await stage.counters(id) == (State.READY, 0, 1)


async def test_a_first_delivery_is_begun_like_any_other(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take(begins=True)
    held = await stage.record(id)
    assert (held.consumer, held.begun_at) == ("tester", None)
    await stage.travel(1)
    await stage.broker.begin(leased)
    first = (await stage.record(id)).begun_at
    assert first is not None
    assert held.claimed_at is not None
    assert first > held.claimed_at
    await stage.travel(1)
    await stage.broker.begin(leased)
    await stage.broker.progress(leased, 10)
    assert (await stage.record(id)).begun_at == first
    assert [each.begun_at for each in await stage.broker.admin.find(state=State.CLAIMED)] == [first]
    await stage.broker.settle(leased, Nack(delay=0))
    await stage.take()
    assert (await stage.record(id)).begun_at is None


async def test_progress_says_that_a_run_has_begun(stage: Stage) -> None:
    id = await stage.publish()
    await stage.broker.progress(await stage.take(), note="half way")
    record = await stage.record(id)
    assert (record.percent, record.note) == (None, "half way")
    assert record.begun_at is not None


async def test_a_begun_suspect_is_settled_like_any_other(stage: Stage) -> None:
    id = await suspect(stage)
    leased = await stage.take(begins=True)
    await stage.broker.begin(leased)
    await stage.broker.begin(leased)
    await stage.broker.settle(leased, Nack(delay=0))
    assert await stage.counters(id) == (State.READY, 1, 2)


async def test_an_unbegun_suspect_can_be_nacked_and_completed(stage: Stage) -> None:
    id = await suspect(stage)
    await stage.broker.settle(await stage.take(begins=True), Nack(delay=0))
    assert await stage.counters(id) == (State.READY, 1, 2)
    await stage.broker.complete(await stage.take(begins=True))
    assert await stage.counters(id) == (State.COMPLETED, 2, 3)


async def test_poison_dies_alone(stage: Stage) -> None:
    poison = await stage.publish()
    good = await stage.publish_each(500)
    while await work(stage, poison):
        await stage.travel(LEASE_OVER)
        await stage.sweep()
    assert await stage.counters(poison) == (State.DEAD, 0, 8)
    assert (await stage.record(poison)).reason == "max_deliveries"
    assert {await stage.state(id) for id in good} == {State.COMPLETED}


async def work(stage: Stage, poison: int) -> bool:
    """A worker with a prefetch of 100, until it dies or has nothing more. True if it did any."""
    held = await stage.claim(limit=100, begins=True)
    done: list[Completion] = []
    for leased in held:
        if leased.suspect:
            await stage.broker.begin(leased)
        if leased.id == poison:
            break
        done.append(Completion(leased.id, leased.fence))
    await stage.broker.extend_many([Extension(each.id, each.fence, 30) for each in held])
    await stage.broker.complete_many(done)
    return bool(held)
