"""Messages whose time is over are never handed out."""

import pytest

from penstock.model.message import Nack, Release, State, Verb
from tests.conformance.stage import Stage, micros

pytestmark = pytest.mark.anyio


async def test_a_waiting_message_expires(stage: Stage) -> None:
    ready, waiting = await stage.publish(ttl=10), await stage.publish(ttl=10, delay=60)
    await stage.travel(11)
    assert await stage.store.expire(100) == 2
    for id in (ready, waiting):
        assert await stage.counters(id) == (State.EXPIRED, 0, 0)
        assert await stage.life(id) == [(Verb.EXPIRE, State.EXPIRED)]
        assert (await stage.last(id)).final
    assert await stage.places() == {"ended": 2}


async def test_nothing_expires_before_its_time(stage: Stage) -> None:
    ids = [await stage.publish(ttl=10), await stage.publish()]
    await stage.travel(9)
    assert await stage.store.expire(100) == 0
    assert await stage.drain() == ids


async def test_what_expires_takes_nothing_with_it_whose_time_is_still_to_come(
    stage: Stage,
) -> None:
    await stage.publish(ttl=10)
    await stage.publish(ttl=10, delay=60)
    ready, waiting = await stage.publish(ttl=100), await stage.publish(ttl=100, delay=60)
    await stage.travel(11)
    assert await stage.store.expire(100) == 2
    assert [await stage.state(id) for id in (ready, waiting)] == [State.READY, State.SCHEDULED]


async def test_a_claimed_message_does_not_expire(stage: Stage) -> None:
    id = await stage.publish(ttl=10)
    leased = await stage.take()
    await stage.travel(20)
    assert await stage.store.expire(100) == 0
    await stage.broker.complete(leased)
    assert await stage.state(id) is State.COMPLETED


@pytest.mark.parametrize("settlement", [Nack(delay=0), Nack(delay=5), Release()])
async def test_a_message_that_comes_back_too_late_expires(
    stage: Stage, settlement: Nack | Release
) -> None:
    id = await stage.publish(ttl=10)
    leased = await stage.take()
    await stage.travel(20)
    await stage.broker.settle(leased, settlement)
    assert await stage.store.expire(100) == 1
    assert await stage.state(id) is State.EXPIRED


async def test_a_dead_message_does_not_expire(stage: Stage) -> None:
    id = await stage.dead(ttl=10)
    await stage.travel(20)
    assert await stage.store.expire(100) == 0
    assert await stage.state(id) is State.DEAD


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_redriven_message_expires_as_before(stage: Stage, key: str | None) -> None:
    id = await stage.dead(ttl=10, ordering_key=key)
    await stage.admin.redrive(id)
    await stage.travel(20)
    assert await stage.claim() == []
    assert await stage.state(id) is State.EXPIRED


async def test_a_claim_passes_over_what_is_over(stage: Stage) -> None:
    over = await stage.publish_each(3, ttl=10)
    live = await stage.publish()
    await stage.travel(11)
    assert [leased.id for leased in await stage.claim(limit=2)] == [live]
    assert [await stage.state(id) for id in over] == [State.EXPIRED] * 3


async def test_a_claim_that_only_cleared_asks_to_be_repeated(stage: Stage) -> None:
    over = await stage.publish_each(2, ttl=10)
    live = await stage.publish()
    await stage.travel(11)
    claimed = await stage.store.claim(await stage.ask(limit=2))
    assert [await stage.state(id) for id in over] == [State.EXPIRED] * 2
    while claimed.again:
        assert not claimed.messages
        claimed = await stage.store.claim(await stage.ask(limit=2))
    assert [leased.id for leased in claimed.messages] == [live]


async def test_a_claim_of_nothing_but_what_is_over_is_empty(stage: Stage) -> None:
    await stage.publish_each(7, ttl=10)
    await stage.travel(11)
    assert await stage.claim(limit=3) == []
    assert await stage.places() == {"ended": 7}


async def test_a_claim_for_types_passes_over_what_is_over(stage: Stage) -> None:
    over = await stage.publish(ttl=10, type="a")
    live = await stage.publish(type="a")
    await stage.travel(11)
    taken = await stage.broker.claim(("default", ["a"]), consumer="t")
    assert [leased.id for leased in taken.messages] == [live]
    assert await stage.state(over) is State.EXPIRED


async def test_a_claim_over_several_queues_passes_over_what_is_over(stage: Stage) -> None:
    await stage.queue("work")
    over, live = await stage.publish(ttl=10), await stage.publish(queue="work")
    await stage.travel(11)
    taken = await stage.broker.claim("default", "work", consumer="t", merge="rank")
    assert [leased.id for leased in taken.messages] == [live]
    assert await stage.state(over) is State.EXPIRED


async def test_a_promoted_message_that_is_over_is_not_handed_out(stage: Stage) -> None:
    id = await stage.publish(ttl=10, delay=5)
    await stage.travel(11)
    await stage.promote()
    assert await stage.claim() == []
    assert await stage.state(id) is State.EXPIRED


@pytest.mark.parametrize("ttl", [0, 0.001])
async def test_a_message_may_be_over_at_once(stage: Stage, ttl: float) -> None:
    id = await stage.publish(ttl=ttl)
    await stage.travel(1)
    assert await stage.claim() == []
    assert await stage.state(id) is State.EXPIRED


async def test_the_earliest_of_ttl_expiry_and_deadline_counts(stage: Stage) -> None:
    now = await stage.store.now()
    near, far = now + micros(10), now + micros(1_000)
    ids = [
        await stage.publish(ttl=10, expires_at=far, deadline=far),
        await stage.publish(ttl=1_000, expires_at=near, deadline=far),
        await stage.publish(ttl=1_000, expires_at=far, deadline=near),
        await stage.publish(deadline=near),
        await stage.publish(expires_at=near),
    ]
    await stage.travel(11)
    assert await stage.store.expire(100) == 5
    assert [await stage.state(id) for id in ids] == [State.EXPIRED] * 5


async def test_expiry_is_bounded(stage: Stage) -> None:
    await stage.publish_each(5, ttl=10)
    await stage.publish_each(5, ttl=10, delay=5)
    await stage.travel(11)
    assert await stage.store.expire(4) == 4
    assert await stage.store.expire(100) == 6
    assert await stage.store.expire(100) == 0


async def test_a_record_says_when_it_expires(stage: Stage) -> None:
    before = await stage.store.now()
    record = await stage.record(await stage.publish(ttl=10))
    assert record.expires_at is not None
    assert before + micros(10) <= record.expires_at <= await stage.store.now() + micros(10)
