"""Looking messages up: newest first, by queue, state, type and correlation, in pages."""

from typing import Any

import pytest

from penstock.errors import NotFound
from penstock.model.message import Nack, SettleReject, State
from penstock.model.store_types import Query
from tests.conformance.acts import SETTLING
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def ids(stage: Stage, queue: str | None = None, **terms: Any) -> list[int]:
    found = await stage.admin.find(queue, **terms)
    return [record.message.id for record in found]


async def test_the_newest_come_first(stage: Stage) -> None:
    published = await stage.publish_each(5)
    assert await ids(stage) == published[::-1]


async def test_what_is_found_is_what_get_says(stage: Stage) -> None:
    await stage.publish_each(len(SETTLING), labels={"a": "b"})
    for act, _ in SETTLING.values():
        await act(stage.broker, await stage.take())
    for record in await stage.admin.find():
        assert record == await stage.record(record.message.id)


async def test_each_state_is_found_apart(stage: Stage) -> None:
    states: dict[State, list[int]] = {state: [] for state in State}
    for act, state in SETTLING.values():
        states[state].insert(0, await stage.publish())
        await act(stage.broker, await stage.take())
        for leftover in await stage.claim(limit=9):
            await stage.broker.settle(leftover, Nack(delay=60))
            states[State.READY].remove(leftover.id)
            states[State.SCHEDULED].insert(0, leftover.id)
    states[State.CLAIMED] = [await stage.publish()]
    await stage.take()
    states[State.EXPIRED] = [await stage.publish(ttl=0)]
    await stage.travel(1)
    await stage.store.expire(9)
    states[State.READY] = [await stage.publish()]
    for state, expected in states.items():
        assert await ids(stage, state=state) == sorted(expected, reverse=True)


async def test_pages_go_on_below_the_last_id(stage: Stage) -> None:
    published = await stage.publish_each(7)
    found: list[int] = []
    while page := await ids(stage, before=found[-1] if found else None, limit=3):
        assert len(page) <= 3
        found += page
    assert found == published[::-1]


@pytest.mark.parametrize("state", [State.READY, State.DEAD, State.COMPLETED])
async def test_pages_of_one_state_miss_nothing(stage: Stage, state: State) -> None:
    await stage.publish_each(12)
    held = await stage.claim(limit=8)
    for leased in held[:4]:
        await stage.broker.complete(leased)
    for leased in held[4:]:
        await stage.broker.settle(leased, SettleReject())
    found: list[int] = []
    while page := await ids(stage, state=state, before=found[-1] if found else None, limit=3):
        found += page
    assert len(found) == len(set(found)) == 4
    assert found == sorted(found, reverse=True)


async def test_a_queue_is_looked_at_alone(stage: Stage) -> None:
    await stage.queue("work")
    here, there = await stage.publish(), await stage.publish(queue="work")
    assert await ids(stage, "work") == [there]
    assert await ids(stage, "default") == [here]
    assert await ids(stage) == [there, here]


@pytest.mark.parametrize("name", ["", *SETTLING])
async def test_every_state_of_a_queue_is_looked_at_alone(stage: Stage, name: str) -> None:
    act, state = SETTLING[name] if name else (None, State.CLAIMED)
    for queue in ("one", "two"):
        await stage.queue(queue)
        id = await stage.publish(queue=queue)
        leased = await stage.take(queue)
        if act is not None:
            await act(stage.broker, leased)
        assert await ids(stage, queue, state=state) == [id]


async def test_a_page_of_one_end_has_no_other(stage: Stage) -> None:
    completed = [await stage.completed() for _ in range(3)]
    for id in await stage.publish_each(3):
        await stage.admin.cancel(id)
    assert await ids(stage, state=State.COMPLETED, limit=2) == [completed[2], completed[1]]


async def test_types_are_found_in_every_state(stage: Stage) -> None:
    mail = await stage.completed(type="mail")
    ready = await stage.publish(type="mail")
    await stage.publish(type="sms")
    assert await ids(stage, type="mail") == [ready, mail]
    assert await ids(stage, type="mail", state=State.COMPLETED) == [mail]
    assert await ids(stage, type="none") == []


async def test_a_correlation_is_found_over_all_queues_in_order(stage: Stage) -> None:
    await stage.queue("one")
    await stage.queue("two")
    related = [
        await stage.publish(queue=name, correlation_id="c") for name in ("default", "one", "two")
    ]
    await stage.publish(correlation_id="other")
    await stage.publish()
    assert await ids(stage, correlation_id="c") == related[::-1]
    assert await ids(stage, "one", correlation_id="c") == [related[1]]


async def test_a_state_is_found_however_many_correlated_are_newer(stage: Stage) -> None:
    old = await stage.publish(correlation_id="c", delay=60)
    for _ in range(3):
        await stage.completed(correlation_id="c")
    assert await ids(stage, correlation_id="c", state=State.SCHEDULED, limit=1) == [old]


async def test_an_unknown_queue_is_not_found(stage: Stage) -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        await stage.admin.find("nowhere")


async def test_purging_takes_the_places_asked_for(stage: Stage) -> None:
    await stage.dead()
    await stage.publish_each(3, delay=60)
    await stage.publish_each(3)
    await stage.take()
    assert await stage.admin.purge("default", "ready") == 2
    assert await stage.places() == {"lease": 1, "scheduled": 3, "dead": 1, "ended": 2}
    assert await stage.admin.purge("default", "scheduled", "dead", "ready") == 4
    assert await stage.places() == {"lease": 1, "ended": 6}


async def test_purging_takes_no_more_than_its_limit(stage: Stage) -> None:
    await stage.publish_each(3, delay=60)
    await stage.publish_each(3)
    assert await stage.admin.purge("default", "ready", "scheduled", limit=4) == 4
    assert (await stage.places())["ended"] == 4


@pytest.mark.parametrize("place", ["ready", "scheduled", "dead"])
async def test_purging_a_place_takes_its_share_and_nothing_of_another_queue(
    stage: Stage, place: str
) -> None:
    for queue in ("older", "newer"):
        await stage.queue(queue)
        for _ in range(3):
            await stage.dead(queue)
        await stage.publish_each(3, queue=queue, delay=60)
        await stage.publish_each(3, queue=queue)
    everywhere = {"ready": 3, "scheduled": 3, "dead": 3}
    assert await stage.admin.purge("newer", place, limit=2) == 2
    assert await stage.places("newer") == everywhere | {place: 1, "ended": 2}
    assert await stage.places("older") == everywhere


async def test_oldest_first_pages_go_on_after_the_last_id(stage: Stage) -> None:
    ids = await stage.publish_each(7)
    await stage.take()
    queue = await stage.queue_id()
    first = await stage.store.find(Query((queue,), after=0, limit=3))
    assert [record.message.id for record in first] == ids[:3]
    rest = await stage.store.find(Query((queue,), after=ids[2], limit=10))
    assert [record.message.id for record in rest] == ids[3:]
    ready = await stage.store.find(Query((queue,), State.READY, after=0, limit=4))
    assert [record.message.id for record in ready] == ids[1:5]
