"""Leases and headings, as live events, activity and traces read them."""

import asyncio
from typing import Any

import pytest

from penstock.broker.activity import reader as activity_reading
from penstock.errors import FieldNotHere, InvalidInput
from penstock.model.activity import Heading, HeldLease, Trace
from penstock.model.documents import AuditEntry, acting
from penstock.model.message import SettleReject
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_held_lists_the_leases_above_a_fence(stage: Stage) -> None:
    await stage.queue("mail")
    await stage.publish_each(2)
    await stage.publish(queue="mail")
    first, second, third = [await stage.take(), await stage.take(), await stage.take("mail")]
    leases = await stage.store.held(0, 10)
    assert [(each.id, each.fence) for each in leases] == [
        (each.id, each.fence) for each in (first, second, third)
    ]
    assert leases[2] == HeldLease(
        id=third.id,
        fence=third.fence,
        queue_id=third.queue_id,
        consumer="tester",
        attempts=0,
        claimed_at=leases[2].claimed_at,
        lease_until=third.lease_until,
    )
    assert await stage.store.held(first.fence, 10) == leases[1:]
    assert len(await stage.store.held(0, 2)) == 2


async def test_held_tells_an_extended_lease_and_none_that_ended(stage: Stage) -> None:
    await stage.publish_each(2)
    kept, ended = await stage.take(), await stage.take()
    await stage.broker.extend(kept, 600)
    await stage.broker.complete(ended)
    (lease,) = await stage.store.held(0, 10)
    assert (lease.id, lease.fence) == (kept.id, kept.fence)
    assert lease.lease_until > kept.lease_until
    assert lease.claimed_at + 30_000_000 == kept.lease_until


async def test_past_tells_what_came_before_a_position(stage: Stage) -> None:
    for _ in range(5):
        await stage.completed()
    rows = (await stage.store.recent(0, 10))[::-1]
    assert await stage.store.past(2**62, 0, 10) == rows
    assert await stage.store.past(rows[0].position, rows[4].position, 10) == rows[1:4]
    assert await stage.store.past(rows[0].position, 0, 2) == rows[1:3]
    assert await stage.store.past(rows[4].position, 0, 10) == []


async def test_headings_tell_what_messages_are_about(stage: Stage) -> None:
    told = await stage.completed(type="send", correlation_id="order-7")
    plain = await stage.publish(b"x" * 100_000)
    queue = (await stage.broker.get_queue("default")).id
    assert await stage.store.headings([told, plain, plain + 1_000, 0, 2**60]) == {
        plain: Heading("message", queue_id=queue),
        told: Heading("send", "order-7", queue),
    }
    assert await stage.store.headings([]) == {}


async def test_activity_is_history_and_acts_newest_first_in_pages(stage: Stage) -> None:
    await stage.queue("mail")
    done = await stage.completed(type="send", correlation_id="c")
    await stage.travel(1)
    dead = await stage.dead("mail")
    await stage.travel(1)
    acting.set(AuditEntry(subject="ada", tenant="default", verb="redrive", target=str(dead)))
    await stage.admin.redrive(dead)
    acting.set(None)
    page = await stage.broker.activity.find()
    told = [(each.kind, each.id, each.queue) for each in page.entries]
    assert told[0] in (("act", dead, ""), ("message.redriven", dead, "mail"))
    assert sorted(told) == [
        ("act", dead, ""),
        ("message.completed", done, "default"),
        ("message.dead", dead, "mail"),
        ("message.redriven", dead, "mail"),
    ]
    assert told[2:] == [("message.dead", dead, "mail"), ("message.completed", done, "default")]
    completed = page.entries[-1]
    assert (completed.type, completed.correlation_id, completed.state, completed.consumer) == (
        "send", "c", "completed", "tester",
    )  # fmt: skip
    assert page.cursor is None
    paged, cursor = [], None
    while True:
        part = await stage.broker.activity.find(cursor=cursor, limit=1)
        paged += part.entries
        cursor = part.cursor
        if cursor is None:
            break
    assert paged == page.entries


async def test_activity_is_filtered_by_what_events_carry(stage: Stage) -> None:
    await stage.queue("mail")
    done = await stage.completed(type="send")
    dead = await stage.dead("mail")

    async def find(**query: Any) -> list[int | None]:
        page = await stage.broker.activity.find(**query)
        return [entry.id for entry in page.entries]

    assert await find(filter="queue:mail") == [dead]
    assert await find(filter="type:send,other state:completed") == [done]
    assert await find(filter="error:good -queue:default") == [dead]
    assert await find(kinds=("message.dead",)) == [dead]
    assert await find(until=1) == []
    assert await find(since=await stage.store.now() + 1) == []
    with pytest.raises(FieldNotHere, match=r"events do not carry body\.n"):
        await find(filter="body.n:1")
    with pytest.raises(InvalidInput, match="unknown kind"):
        await find(kinds=("message.gone",))
    with pytest.raises(InvalidInput, match="cursor"):
        await stage.broker.activity.find(cursor="x")


async def test_activity_is_read_over_gaps_in_history(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity_reading, "WINDOW_SIZE", 2)
    await stage.queue("mail")
    ids = [await stage.completed() for _ in range(3)]
    for _ in range(7):
        await stage.completed("mail")
    ids += [await stage.completed() for _ in range(2)]
    await stage.travel(60)
    await stage.admin.prune("mail")
    page = await stage.broker.activity.find()
    assert [entry.id for entry in page.entries] == ids[::-1]


async def test_what_happens_is_followed(stage: Stage) -> None:
    await stage.completed()
    following = stage.broker.activity.follow("-queue:other")
    id, waiting = 0, asyncio.ensure_future(anext(following))
    # It begins at the end of history.
    async with asyncio.timeout(30):
        while not waiting.done():
            id = await stage.completed()
            await asyncio.wait([waiting], timeout=0.2)
    entry = waiting.result()
    assert (entry.kind, entry.queue) == ("message.completed", "default")
    assert entry.id is not None
    assert entry.id <= id
    await following.aclose()


async def test_a_trace_has_messages_of_all_queues_as_a_tree_and_events_in_order(
    stage: Stage,
) -> None:
    for name in ("orders", "mail", "bills"):
        await stage.queue(name)
    order = await stage.completed("orders", correlation_id="order-7")
    await stage.completed(correlation_id="other")
    await stage.travel(1)
    mail = await stage.publish(queue="mail", correlation_id="order-7", causation_id=str(order))
    bill = await stage.publish(queue="bills", correlation_id="order-7", parent_id=order)
    reminder = await stage.publish(queue="mail", correlation_id="order-7", parent_id=bill)
    await stage.broker.settle(await stage.take("bills"), SettleReject("no money"))
    await stage.travel(1)
    acting.set(AuditEntry(subject="ada", tenant="default", verb="redrive", target=str(bill)))
    await stage.admin.redrive(bill)
    acting.set(None)
    trace = await stage.broker.activity.trace("order-7")
    assert trace.complete
    tree = [(each.record.message.id, each.depth, each.parent) for each in trace.messages]
    assert tree == [(order, 0, None), (mail, 1, order), (bill, 1, order), (reminder, 2, bill)]
    assert [each.queue for each in trace.messages] == ["orders", "mail", "bills", "mail"]
    assert trace.events == sorted(trace.events, key=lambda event: event.order)
    told = [(event.kind, event.id) for event in trace.events if event.id in (order, bill)]
    assert told[:3] == [
        ("message.published", order), ("message.claimed", order), ("message.completed", order),
    ]  # fmt: skip
    assert told[3:6] == [
        ("message.published", bill), ("message.claimed", bill), ("message.dead", bill),
    ]  # fmt: skip
    assert sorted(told[6:]) == [("act", bill), ("message.redriven", bill)]
    assert await stage.broker.activity.trace("nothing") == Trace("nothing", [], [])
