"""Moving, editing and reprioritising messages that wait or are dead."""

from typing import Any

import pytest

from penstock.errors import InvalidState, NameTaken, NotFound, PenstockError, QueueDraining
from penstock.model.changes import Change, Item, ItemAnswer, ItemVerb
from penstock.model.documents import Document
from penstock.model.message import After, Dedup, Flag, Nack, SettleReject, State, Verb
from penstock.model.queue import QueueState
from penstock.model.store_types import AnswerKind, Entry
from tests.conformance.stage import HOUR, Stage

pytestmark = pytest.mark.anyio
MORE: dict[str, Any] = {
    "type": "mail", "priority": 3, "headers": {"h": "1"}, "labels": {"tier": "gold"},
    "correlation_id": "c", "name": "n", "max_attempts": 9,
}  # fmt: skip


async def test_a_moved_message_ends_linked_to_the_new_one(stage: Stage) -> None:
    await stage.queue("other")
    id = await stage.publish(b"body", **MORE)
    new = (await stage.admin.move(id, "other")).id
    old, moved = await stage.record(id), (await stage.record(new)).message
    assert (old.state, old.reason, old.error) == (State.CANCELLED, "moved", f"by {new}")
    assert [(row.verb, row.final) for row in old.timeline] == [(Verb.CANCEL, True)]
    assert (moved.body, moved.type, moved.priority, moved.meta.parent_id) == (
        b"body",
        "mail",
        3,
        id,
    )
    assert (moved.meta.headers, moved.meta.labels, moved.meta.name, moved.meta.max_attempts) == (
        {"h": "1"}, {"tier": "gold"}, "n", 9,
    )  # fmt: skip
    assert await stage.drain() == []
    assert await stage.drain("other") == [new]


async def test_a_due_time_and_the_remaining_time_to_live_go_over(stage: Stage) -> None:
    await stage.queue("other")
    id = await stage.publish(delay=60, ttl=HOUR)
    before = await stage.record(id)
    after = await stage.record((await stage.admin.move(id, "other")).id)
    assert (after.state, after.due_at) == (State.SCHEDULED, before.due_at)
    assert after.expires_at == before.expires_at


async def test_a_dead_message_that_is_moved_can_be_claimed(stage: Stage) -> None:
    await stage.queue("other")
    id = await stage.dead(body=b"body")
    new = (await stage.admin.move(id, "other")).id
    assert (await stage.take("other")).id == new
    assert await stage.places() == {"ended": 1}


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_an_edited_body_is_what_the_worker_gets(stage: Stage, delay: float) -> None:
    id = await stage.publish(b"body", delay=delay)
    new = (await stage.admin.edit(id, b"edited")).id
    old = await stage.record(id)
    assert (old.message.body, old.reason, old.error) == (b"body", "replaced", f"by {new}")
    await stage.travel(61)
    await stage.store.promote(10)
    leased = await stage.take()
    assert (leased.id, leased.body, leased.meta.parent_id) == (new, b"edited", id)


async def test_a_claimed_message_is_neither_moved_edited_nor_reprioritised(stage: Stage) -> None:
    await stage.queue("other")
    id = await stage.publish()
    await stage.take()
    before = await stage.all(id)
    for refused in (
        stage.admin.move(id, "other"),
        stage.admin.edit(id, b"x"),
        stage.admin.reprioritise(id, 5),
    ):
        with pytest.raises(InvalidState, match="claimed"):
            await refused
    assert await stage.all(id) == before


async def test_a_replaced_message_calls_no_one_back(stage: Stage) -> None:
    id = await stage.publish(callback="https://example.org/hook")
    new = (await stage.admin.edit(id, b"edited")).id
    assert await stage.admin.callbacks(id) == []
    await stage.broker.complete(await stage.take())
    assert len(await stage.admin.callbacks(new)) == 1


async def test_a_dedup_key_does_not_go_over(stage: Stage) -> None:
    id = await stage.publish(dedup=Dedup("k", None))
    new = (await stage.admin.edit(id, b"edited")).id
    assert (await stage.record(new)).message.meta.dedup is None
    assert await stage.publish(dedup=Dedup("k", None)) > new


async def test_a_name_leads_to_the_replacement(stage: Stage) -> None:
    id = await stage.publish(name="n")
    new = (await stage.admin.edit(id, b"edited")).id
    assert (await stage.admin.get("default/n")).message.id == new


async def test_a_move_to_a_queue_that_has_the_name_changes_nothing(stage: Stage) -> None:
    await stage.queue("other")
    await stage.publish(queue="other", name="n")
    id = await stage.publish(name="n")
    before = await stage.all(id)
    with pytest.raises(NameTaken, match="'n'"):
        await stage.admin.move(id, "other")
    assert await stage.all(id) == before


async def test_a_move_into_a_queue_that_takes_none_changes_nothing(stage: Stage) -> None:
    await stage.queue("other")
    await stage.admin.set_state("other", QueueState.DRAINING)
    id = await stage.publish()
    with pytest.raises(QueueDraining):
        await stage.admin.move(id, "other")
    with pytest.raises(NotFound):
        await stage.admin.move(id, "none")
    with pytest.raises(PenstockError):
        await stage.admin.move(id, "_dead_letter")
    assert await stage.drain() == [id]


@pytest.mark.parametrize("place", range(3))
async def test_an_edited_message_keeps_its_turn_among_its_key(stage: Stage, place: int) -> None:
    ids = [await stage.publish(ordering_key="k") for _ in range(3)]
    ids[place] = (await stage.admin.edit(ids[place], b"edited")).id
    assert await stage.drain() == ids


async def test_an_edited_head_that_waits_for_a_retry_keeps_its_key(stage: Stage) -> None:
    first = await stage.publish(ordering_key="k")
    second = await stage.publish(ordering_key="k")
    await stage.broker.settle(await stage.take(), Nack(delay=60))
    new = (await stage.admin.edit(first, b"edited")).id
    assert await stage.claim() == []
    await stage.travel(61)
    await stage.store.promote(10)
    assert await stage.drain() == [new, second]


async def test_an_edited_message_that_is_not_due_keeps_its_turn(stage: Stage) -> None:
    first = await stage.publish(ordering_key="k", delay=60)
    head = await stage.publish(ordering_key="k")
    last = await stage.publish(ordering_key="k")
    new = (await stage.admin.edit(first, b"edited")).id
    await stage.travel(61)
    await stage.store.promote(10)
    assert await stage.drain() == [head, new, last]


async def test_a_move_of_the_head_frees_its_key(stage: Stage) -> None:
    await stage.queue("other")
    first, second = [await stage.publish(ordering_key="k") for _ in range(2)]
    new = (await stage.admin.move(first, "other")).id
    assert await stage.drain() == [second]
    assert await stage.drain("other") == [new]


@pytest.mark.parametrize("settings", [{}, {"seconds_per_level": 60.0}])
async def test_a_reprioritised_message_is_claimed_first_through_retries(
    stage: Stage, settings: dict[str, Any]
) -> None:
    await stage.queue("work", **settings)
    high = await stage.publish(queue="work", priority=5)
    low = await stage.publish(queue="work", priority=1)
    await stage.admin.reprioritise(low, 9)
    for _ in range(2):
        leased = await stage.take("work")
        assert (leased.id, leased.priority) == (low, 1)
        await stage.broker.settle(leased, Nack(delay=0))
    assert await stage.drain("work") == [low, high]


async def test_a_scheduled_message_is_reprioritised(stage: Stage) -> None:
    high = await stage.publish(priority=5)
    low = await stage.publish(priority=1, delay=60)
    await stage.admin.reprioritise(low, 9)
    await stage.admin.reprioritise(low, 9)
    await stage.travel(61)
    await stage.store.promote(10)
    assert await stage.drain() == [low, high]


async def test_only_the_ordering_priority_can_be_reprioritised(stage: Stage) -> None:
    await stage.queue("work", ordering="fifo")
    id = await stage.publish(queue="work")
    with pytest.raises(PenstockError, match="fifo"):
        await stage.admin.reprioritise(id, 1)
    with pytest.raises(PenstockError, match="priority"):
        await stage.admin.reprioritise(await stage.publish(), 10**30)


def make_item(verb: ItemVerb, id: int, seen: State, queue_id: int, **fields: Any) -> Item:
    return Item(verb=verb, id=id, seen=seen, queue_id=queue_id, **fields)


async def test_each_item_of_a_change_answers_for_itself(stage: Stage) -> None:
    queue_id = await stage.queue_id()
    dead, gone = await stage.dead(), await stage.completed()
    later = await stage.publish(delay=60)
    held = await stage.publish()
    await stage.take()
    ready = await stage.publish()
    horizon = await stage.store.horizon()
    wanted = [
        (ItemVerb.REDRIVE, dead, State.DEAD),
        (ItemVerb.CANCEL, ready, State.READY),
        (ItemVerb.PURGE, later, State.SCHEDULED),
        (ItemVerb.CANCEL, held, State.CLAIMED),
        (ItemVerb.CANCEL, gone, State.READY),
        (ItemVerb.PURGE, 10**6, State.DEAD),
        (ItemVerb.RERANK, held, State.READY),
    ]
    items = tuple(
        make_item(verb, id, seen, queue_id, by="bulk:b", as_of=horizon.history)
        for verb, id, seen in wanted
    )
    outcome = Document(kind="outcome", name="b", body=b"")
    cursor = Document(kind="cursor", name="b", body=b"1", version=0)
    change = Change(guards=(cursor,), items=items, outcome=outcome)
    changed = await stage.store.advance(change)
    assert changed is not None
    assert changed.items == (
        ItemAnswer(AnswerKind.DONE, State.READY),
        ItemAnswer(AnswerKind.DONE, State.CANCELLED),
        ItemAnswer(AnswerKind.DONE, State.CANCELLED),
        ItemAnswer(AnswerKind.DONE, State.CLAIMED),
        ItemAnswer(AnswerKind.INVALID, State.COMPLETED),
        ItemAnswer(AnswerKind.MISSING),
        ItemAnswer(AnswerKind.INVALID, State.CLAIMED),
    )
    kept = await stage.store.document("outcome", "b")
    assert kept is not None
    assert kept.body.decode().splitlines() == [each.encode() for each in changed.items]
    assert (await stage.last(dead)).reason == "bulk:b"
    assert (await stage.last(later)).error == "bulk:b"
    assert (await stage.record(held)).cancel_requested
    assert await stage.store.advance(change) is None


@pytest.mark.parametrize("verb", [ItemVerb.REDRIVE, ItemVerb.PURGE])
async def test_dead_messages_of_one_change_answer_each_for_itself(
    stage: Stage, verb: ItemVerb
) -> None:
    queue_id = await stage.queue_id()
    ids = [await stage.dead(), await stage.dead(ordering_key="k"), await stage.dead(), 10**6]
    horizon = await stage.store.horizon()
    await stage.admin.redrive(ids[2])
    await stage.broker.settle(await stage.take(), SettleReject("again"))
    items = tuple(
        make_item(verb, id, State.DEAD, queue_id, by="bulk:b", as_of=horizon.history) for id in ids
    )
    changed = await stage.store.advance(Change(items=items))
    assert changed is not None
    done = State.READY if verb is ItemVerb.REDRIVE else State.CANCELLED
    assert changed.items == (
        ItemAnswer(AnswerKind.DONE, done),
        ItemAnswer(AnswerKind.DONE, done),
        ItemAnswer(AnswerKind.CHANGED, State.DEAD),
        ItemAnswer(AnswerKind.MISSING),
    )
    assert [await stage.state(id) for id in ids[:3]] == [done, done, State.DEAD]
    plain, keyed = [await stage.last(id) for id in ids[:2]]
    assert (plain.reason, plain.error) == (keyed.reason, keyed.error)
    assert "bulk:b" in (plain.reason, plain.error)
    assert (plain.attempts, plain.deliveries) == (keyed.attempts, keyed.deliveries)
    assert sorted(await stage.drain()) == (ids[:2] if verb is ItemVerb.REDRIVE else [])


async def test_an_item_leaves_a_message_that_changed_since(stage: Stage) -> None:
    queue_id = await stage.queue_id()
    id = await stage.publish()
    horizon = await stage.store.horizon()
    assert horizon.message == id
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    item = make_item(ItemVerb.CANCEL, id, State.READY, queue_id, as_of=horizon.history)
    changed = await stage.store.advance(Change(items=(item,)))
    assert changed is not None
    assert changed.items == (ItemAnswer(AnswerKind.CHANGED, State.READY),)
    assert await stage.drain() == [id]


async def test_a_message_that_others_wait_for_keeps_its_id(stage: Stage) -> None:
    """The messages that wait for it know it by its id."""
    queue_id = await stage.queue_id()
    entries = [
        Entry(queue_id, "message", b""),
        Entry(queue_id, "message", b"", flags=Flag.HELD, after=After(entries=(0,))),
    ]
    awaited, held = [each.id for each in await stage.store.enqueue(entries, atomic=True)]
    for id in (awaited, held):
        with pytest.raises(InvalidState, match="waits for others"):
            await stage.admin.edit(id, b"edited")
    assert await stage.state(awaited) is State.READY
