"""Callbacks: whoever asked is told of an end by a message that is written in the same step."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.broker.local import Broker
from penstock.errors import Forbidden, InvalidInput
from penstock.model.message import Dedup, Draft, Fail, Nack, Record, Release, SettleReject, State
from penstock.model.queue import CALLBACK
from penstock.model.store_types import Claim, Completion, Query
from penstock.rules.callbacks import TYPE, Ended, decode, make_correlation_id
from tests.conformance.acts import ENDABLE, ENDINGS
from tests.conformance.stage import HOUR, LEASE_OVER, Stage, refusal

pytestmark = pytest.mark.anyio

URL = "https://example.org/done"
REASONS = {
    "rejected": "rejected",
    "out of attempts": "retries_exhausted",
    "out of deliveries": "max_deliveries",
    "cancelled": "requested",
    "cancelled on request": "requested",
    "cancelled by force": "forced",
    "purged": "purged",
}


async def callbacks(stage: Stage) -> list[Record]:
    """All there are, the first one first."""
    found = await stage.store.find(Query((await stage.queue_id(CALLBACK),), limit=1_000))
    return found[::-1]


async def read_callbacks(stage: Stage) -> list[Ended]:
    return [decode(record.message.body) for record in await callbacks(stage)]


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_end_is_told_once_to_whoever_asked_and_to_nobody_else(
    stage: Stage, name: str
) -> None:
    await stage.queue("work")
    ending, state = ENDINGS[name]
    await stage.publish(**ENDABLE)
    await ending(stage)
    id = await stage.publish(**ENDABLE, callback=URL)
    assert await callbacks(stage) == []
    await ending(stage)
    assert await stage.state(id) is state
    (record,) = await callbacks(stage)
    assert (record.state, record.message.type) == (State.READY, TYPE)
    assert decode(record.message.body) == Ended(str(id), state, REASONS.get(name))
    assert (record.message.meta.parent_id, record.message.priority) == (id, 0)
    assert await stage.places(CALLBACK) == {"ready": 1}


async def scheduled_cancelled(stage: Stage, id: int) -> None:
    await stage.admin.cancel(id)


async def scheduled_expired(stage: Stage, id: int) -> None:
    await stage.travel(HOUR + 1)
    assert await stage.store.expire(10) == 1


async def scheduled_purged(stage: Stage, id: int) -> None:
    assert await stage.admin.purge("default", "scheduled") == 1


WAITING: dict[str, tuple[Callable[[Stage, int], Awaitable[None]], State, str | None]] = {
    "cancelled": (scheduled_cancelled, State.CANCELLED, "requested"),
    "expired": (scheduled_expired, State.EXPIRED, None),
    "purged": (scheduled_purged, State.CANCELLED, "purged"),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_message_that_never_became_ready_is_told_of(stage: Stage, name: str) -> None:
    ending, state, reason = WAITING[name]
    id = await stage.publish(delay=2 * HOUR, ttl=HOUR, callback=URL)
    await ending(stage, id)
    assert await read_callbacks(stage) == [Ended(str(id), state, reason)]


async def test_an_overflow_is_told_of(stage: Stage) -> None:
    await stage.queue("small", max_depth=1, overflow="dead")
    first = await stage.publish(queue="small", callback=URL)
    second = await stage.publish(queue="small", callback=URL)
    assert (await stage.state(first), await stage.state(second)) == (State.READY, State.DEAD)
    assert await read_callbacks(stage) == [Ended(str(second), State.DEAD, "overflow")]


async def purge_dead(stage: Stage, id: int) -> None:
    await stage.admin.purge_dead(id)


async def purge_all(stage: Stage, id: int) -> None:
    assert await stage.admin.purge("default", "dead") == 1


async def complete_letter(stage: Stage, id: int) -> None:
    await stage.broker.complete(await stage.take("_dead_letter"))


async def fail_letter(stage: Stage, id: int) -> None:
    await stage.broker.settle(await stage.take("_dead_letter"), Fail("no"))


async def redrive(stage: Stage, id: int) -> None:
    await stage.admin.redrive(id)
    await stage.broker.complete(await stage.take())


AFTER_DEATH: dict[str, tuple[Callable[[Stage, int], Awaitable[None]], State, str | None]] = {
    "purged by id": (purge_dead, State.CANCELLED, "purged"),
    "purged": (purge_all, State.CANCELLED, "purged"),
    "completed as a letter": (complete_letter, State.COMPLETED, None),
    "failed as a letter": (fail_letter, State.FAILED, None),
    "redriven and completed": (redrive, State.COMPLETED, None),
}


async def test_the_replacement_of_a_dead_letter_is_told_of_when_it_ends(stage: Stage) -> None:
    id = await stage.dead(callback=URL)
    replaced = await stage.admin.redrive(id, body=b"better")
    await stage.broker.complete(await stage.take())
    assert await read_callbacks(stage) == [
        Ended(str(id), State.DEAD, "rejected"),
        Ended(str(replaced.id), State.COMPLETED, None),
    ]


@pytest.mark.parametrize("name", AFTER_DEATH)
async def test_a_dead_letter_is_told_of_when_it_dies_and_when_it_ends(
    stage: Stage, name: str
) -> None:
    ending, state, reason = AFTER_DEATH[name]
    id = await stage.dead(callback=URL)
    await ending(stage, id)
    assert await read_callbacks(stage) == [
        Ended(str(id), State.DEAD, "rejected"),
        Ended(str(id), state, reason),
    ]


@pytest.mark.parametrize("settlement", [Nack("no"), SettleReject("no"), Release()])
async def test_a_letter_that_stays_dead_is_told_of_once(stage: Stage, settlement: Any) -> None:
    id = await stage.dead(callback=URL)
    await stage.broker.settle(await stage.take("_dead_letter"), settlement)
    await stage.take("_dead_letter")
    await stage.travel(LEASE_OVER)
    assert len(await stage.sweep()) == 1
    assert await stage.state(id) is State.DEAD
    assert len(await read_callbacks(stage)) == 1


async def test_a_run_that_is_not_the_last_tells_nobody(stage: Stage) -> None:
    await stage.queue("work", backoff={"kind": "none"})
    id = await stage.publish(queue="work", callback=URL)
    await stage.broker.settle(await stage.take("work"), Nack("later", delay=60))
    await stage.travel(61)
    await stage.promote()
    await stage.broker.settle(await stage.take("work"), Release())
    await stage.take("work")
    await stage.travel(LEASE_OVER)
    assert len(await stage.sweep()) == 1
    assert await callbacks(stage) == []
    await stage.broker.complete(await stage.take("work"))
    assert await read_callbacks(stage) == [Ended(str(id), State.COMPLETED)]


async def test_a_replacement_and_a_copy_have_the_callback_of_the_original(stage: Stage) -> None:
    id = await stage.completed(callback=URL)
    copy = (await stage.admin.redrive(id)).id
    assert (await stage.record(copy)).message.meta.callback == URL
    assert await stage.drain() == [copy]
    assert [each.id for each in await read_callbacks(stage)] == [str(id), str(copy)]


async def test_a_duplicate_adds_no_callback(stage: Stage) -> None:
    first = await stage.publish(dedup=Dedup("a", None), callback=URL)
    second = await stage.publish(dedup=Dedup("a", None), callback=URL)
    assert first == second
    assert await stage.drain() == [first]
    assert await read_callbacks(stage) == [Ended(str(first), State.COMPLETED)]


async def test_a_keyed_and_unique_one_frees_its_keys_and_is_told_of(stage: Stage) -> None:
    draft: dict[str, Any] = {"ordering_key": "k", "dedup": Dedup("u", None), "callback": URL}
    first = await stage.publish(**draft)
    second = await stage.publish(ordering_key="k")
    await stage.broker.complete(await stage.take())
    assert (await stage.take()).id == second
    assert await stage.publish(**draft) > second
    assert await read_callbacks(stage) == [Ended(str(first), State.COMPLETED)]


async def test_a_batch_tells_of_those_that_asked_and_of_those_alone(stage: Stage) -> None:
    drafts = [Draft(callback=URL if number % 2 else None) for number in range(6)]
    ids = [each.id for each in await stage.broker.publish_many(drafts)]
    held = await stage.claim(limit=6)
    done = await stage.broker.complete_many(
        [Completion(each.id, each.fence, b"1") for each in held]
    )
    assert len(done) == 6
    assert {each.id for each in await read_callbacks(stage)} == {str(id) for id in ids[1::2]}
    assert await stage.store.result(ids[1]) == b"1"


async def test_a_batch_of_failures_tells_of_those_that_asked(stage: Stage) -> None:
    drafts = [Draft(callback=URL if number % 2 else None) for number in range(4)]
    ids = [each.id for each in await stage.broker.publish_many(drafts)]
    held = await stage.claim(limit=4)
    await stage.broker.settle_many([(each, Fail("no")) for each in held])
    assert {(each.id, each.state) for each in await read_callbacks(stage)} == {
        (str(id), State.FAILED) for id in ids[1::2]
    }


async def test_a_completion_that_lost_its_lock_tells_nobody(stage: Stage) -> None:
    await stage.publish(callback=URL)
    late = await stage.take()
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    assert await refusal(stage.broker.complete(late)) == "LOCK_LOST"
    assert await callbacks(stage) == []


async def test_the_callbacks_of_a_message_are_found_by_its_id(stage: Stage) -> None:
    await stage.completed(callback=URL)
    id = await stage.completed(callback=URL)
    query = Query((await stage.queue_id(CALLBACK),), correlation_id=make_correlation_id(id))
    (found,) = await stage.store.find(query)
    assert decode(found.message.body).id == str(id)
    assert found.message.meta.correlation_id == make_correlation_id(id)


async def test_a_callback_is_claimed_retried_and_pruned_as_any_message(stage: Stage) -> None:
    first = await stage.completed(callback=URL)
    second = await stage.completed(callback=URL)
    claim = Claim((await stage.queue_id(CALLBACK),), "sender", 10, 60.0)
    held = (await stage.store.claim(claim)).messages
    assert [decode(each.body).id for each in held] == [str(first), str(second)]
    await stage.broker.settle(held[0], Nack("500"))
    await stage.broker.complete(held[1])
    assert await stage.counters(held[0].id) == (State.SCHEDULED, 1, 1)
    await stage.travel(8 * 24 * HOUR)
    assert await stage.prune(7 * 24 * HOUR, CALLBACK) == 1
    assert [record.message.id for record in await callbacks(stage)] == [held[0].id]


async def test_nobody_publishes_to_the_queue_of_callbacks_or_claims_from_it(stage: Stage) -> None:
    with pytest.raises(Forbidden):
        await stage.publish(queue=CALLBACK)
    with pytest.raises(Forbidden):
        await stage.claim(CALLBACK)
    with pytest.raises(Forbidden):
        await stage.admin.delete_queue(CALLBACK)


async def test_callbacks_of_other_tenants_are_in_the_same_queue(stage: Stage) -> None:
    await stage.store.create_scope("other", "default")
    other = Broker(stage.store, tenant="other")
    await other.admin.create_queue("work")
    id = (await other.publish(Draft(queue="work", callback=URL))).id
    (held,) = (await other.claim("work", consumer="t")).messages
    await other.complete(held)
    assert await read_callbacks(stage) == [Ended(str(id), State.COMPLETED)]


async def test_an_address_is_kept_as_it_is_written_and_one_that_is_none_refused(
    stage: Stage,
) -> None:
    url = "https://example.org:8443/a?b=c%20d"
    id = await stage.publish(callback=url)
    assert (await stage.record(id)).message.meta.callback == url
    assert (await stage.take()).meta.callback == url
    with pytest.raises(InvalidInput, match="callback"):
        await stage.publish(callback="ftp://example.org/")
    assert await stage.places() == {"lease": 1}
