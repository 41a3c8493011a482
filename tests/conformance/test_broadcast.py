"""Broadcast queues: every live subscription gets its own copy, exactly from its start on."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.agents.broadcast_follower import BroadcastFollower
from penstock.broker.broadcast.fanout import fan_out
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Forbidden, InvalidInput, InvalidState, NoSubscriber
from penstock.model.broadcast import BROADCAST_CATCH_UP
from penstock.model.message import Dedup, Draft, Nack, State
from penstock.rules.rule_checks import parse_rule
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def broadcast(stage: Stage, *names: str, **settings: Any) -> None:
    await stage.queue("events", kind="broadcast", **settings)
    for name in names:
        await stage.broker.broadcasts.subscribe("events", name)


async def test_three_subscriptions_end_their_copies_independently(stage: Stage) -> None:
    await broadcast(stage, "a", "b", "c", max_attempts=1)
    published = await stage.broker.publish(Draft(queue="events", body=b"1", correlation_id="c"))
    parent = await stage.record(published.id)
    assert (parent.state, parent.reason) == (State.COMPLETED, "broadcast")
    children = [await stage.take(f"events/{name}") for name in "abc"]
    assert [(each.body, each.meta.parent_id, each.meta.correlation_id) for each in children] == [
        (b"1", published.id, "c")
    ] * 3
    await stage.broker.settle(children[1], Nack("no"))
    for child in (children[0], children[2]):
        await stage.broker.complete(child)
    states = [(await stage.record(each.id)).state for each in children]
    assert states == [State.COMPLETED, State.DEAD, State.COMPLETED]


async def test_a_broadcast_queue_is_deleted_with_its_subscriptions_by_force_only(
    stage: Stage,
) -> None:
    await broadcast(stage, "a", "b")
    await stage.broker.publish(Draft(queue="events"))
    with pytest.raises(InvalidState, match="has subscriptions: a, b; delete them first"):
        await stage.admin.delete_queue("events")
    await stage.admin.delete_queue("events", force=True)
    assert [each.name for each in await stage.admin.queues() if not each.system] == ["default"]


async def test_a_filter_chooses_what_a_subscription_gets(stage: Stage) -> None:
    await broadcast(stage)
    subscribe = stage.broker.broadcasts.subscribe
    await subscribe("events", "orders", filter="type:order.* -label.test:yes body.total>10")
    with pytest.raises(InvalidInput, match="state is not known when a message is published"):
        await subscribe("events", "bad", filter="state:dead")
    given = [
        Draft(queue="events", type="order.new", body=b'{"total": 11}'),
        Draft(queue="events", type="order.new", body=b'{"total": 9}'),
        Draft(queue="events", type="mail.sent", body=b'{"total": 11}'),
        Draft(queue="events", type="order.x", body=b'{"total": 11}', labels={"test": "yes"}),
    ]
    answers = await stage.broker.publish_many(given)
    taken = await stage.claim("events/orders", limit=9)
    assert [each.meta.parent_id for each in taken] == [answers[0].id]


async def test_every_publish_after_a_subscription_is_copied_to_it(stage: Stage) -> None:
    """Another process may not know the subscription yet."""
    await broadcast(stage, "old")
    other = await stage.another()
    await other.publish(queue="events")
    await stage.broker.broadcasts.subscribe("events", "new")
    ids = [await other.publish(queue="events")]
    await stage.broker.broadcasts.subscribe("events", "newer")
    answers = await other.broker.publish_many([Draft(queue="events")] * 2, atomic=True)
    ids += [each.id for each in answers]
    assert [each.meta.parent_id for each in await stage.claim("events/new", limit=9)] == ids
    assert [each.meta.parent_id for each in await stage.claim("events/newer", limit=9)] == ids[1:]


async def test_a_full_subscription_does_not_refuse_the_publish(stage: Stage) -> None:
    await broadcast(stage, "free")
    await stage.broker.broadcasts.subscribe("events", "full", max_depth=1)
    for _ in range(2):
        await stage.publish(queue="events")
    assert await stage.places("events/full") == {"ready": 1, "dead": 1}
    assert await stage.places("events/free") == {"ready": 2}


async def test_a_large_limit_is_looked_at_once_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("penstock.agents.broadcast_follower", "penstock.broker.broadcast.fanout"):
        monkeypatch.setattr(f"{module}.MAX_COUNTED_DEPTH", 1)
    await broadcast(stage, "free")
    child = await stage.admin.queue("events/free")
    assert child.settings.max_depth == 100_000
    await stage.broker.broadcasts.subscribe("events", "slow", max_depth=2)
    agent, marks = follower(stage), []
    for _ in range(2):
        await stage.broker.publish_many([Draft(queue="events")] * 3)
        await stage.travel(61)
        await follow(agent)
        marks.append((await stage.broker.broadcasts.get("events", "slow")).full)
    assert await stage.places("events/slow") == {"ready": 3, "dead": 3}
    assert await stage.places("events/free") == {"ready": 6}
    await stage.drain("events/slow")
    await stage.travel(61)
    await follow(agent)
    marks.append((await stage.broker.broadcasts.get("events", "slow")).full)
    assert marks == [True, True, False]
    await stage.publish(queue="events")
    assert (await stage.places("events/slow"))["ready"] == 1


async def test_without_a_subscription_a_publish_is_kept_or_refused(stage: Stage) -> None:
    await broadcast(stage)
    id = await stage.publish(queue="events")
    assert (await stage.record(id)).state is State.COMPLETED
    await stage.admin.set_queue("events", require_subscriber=True)
    with pytest.raises(NoSubscriber):
        await stage.publish(queue="events")


async def test_a_duplicate_is_not_copied_again(stage: Stage) -> None:
    await broadcast(stage, "a")
    draft = Draft(queue="events", dedup=Dedup("k"))
    first, again = [await stage.broker.publish(draft) for _ in range(2)]
    assert (again.id, again.duplicate) == (first.id, True)
    assert len(await stage.claim("events/a", limit=9)) == 1


async def test_a_rule_can_route_to_a_broadcast_queue(stage: Stage) -> None:
    await broadcast(stage, "a")
    rule = {"name": "r", "queue": "default", "do": [{"copy": "events"}]}
    await stage.broker.rules.save(parse_rule(rule))
    published = await stage.broker.publish(Draft(body=b"x"))
    assert published.routed == ("default", "events")
    child = await stage.take("events/a")
    assert child.body == b"x"
    assert (await stage.record(child.meta.parent_id or 0)).message.meta.parent_id == published.id


async def test_deleting_a_subscription_cancels_what_waits_in_it(stage: Stage) -> None:
    await broadcast(stage, "a", "b")
    await stage.publish(queue="events")
    assert await stage.broker.broadcasts.unsubscribe("events", "a") == 1
    assert [each.name for each in await stage.broker.broadcasts.list_subscriptions("events")] == [
        "b"
    ]
    await stage.publish(queue="events")
    assert await stage.places("events/b") == {"ready": 2}


async def test_only_broadcast_queues_have_subscriptions_and_only_they_feed_them(
    stage: Stage,
) -> None:
    await broadcast(stage, "a")
    with pytest.raises(InvalidState, match="kind is 'competing', not 'broadcast'"):
        await stage.broker.broadcasts.subscribe("default", "a")
    with pytest.raises(Forbidden, match="publish to 'events'"):
        await stage.publish(queue="events/a")


async def test_subscribing_again_changes_the_filter_and_keeps_the_messages(stage: Stage) -> None:
    await broadcast(stage, "a")
    await stage.publish(queue="events", type="x")
    changed = await stage.broker.broadcasts.subscribe("events", "a", filter="type:y")
    await stage.publish(queue="events", type="x")
    assert (changed.filter, changed.version) == ("type:y", 1)
    assert await stage.places("events/a") == {"ready": 1}


def follower(stage: Stage) -> BroadcastFollower:
    return BroadcastFollower(stage.store, QueueCache(stage.store), "me")


async def follow(agent: BroadcastFollower) -> None:
    while not await agent.tick():
        pass


async def test_a_subscription_from_the_earliest_gets_what_was_published_before(
    stage: Stage,
) -> None:
    await broadcast(stage, "a")
    ids = [await stage.publish(queue="events", type=each) for each in "xyx"]
    subscribe = stage.broker.broadcasts.subscribe
    made = await subscribe("events", "late", start="earliest", filter="type:x")
    assert made.catching_up
    ids.append(await stage.publish(queue="events", type="x"))
    for _ in range(2):
        await follow(follower(stage))
    taken = await stage.claim("events/late", limit=9)
    assert sorted(each.meta.parent_id or 0 for each in taken) == [ids[0], ids[2], ids[3]]
    assert not (await stage.broker.broadcasts.get("events", "late")).catching_up


async def test_catching_up_waits_for_a_transaction_that_commits_much_later(
    stage: Stage,
) -> None:
    """It was made from the subscriptions of its time, and no copy for the new one."""
    await broadcast(stage, "a")
    queue = await stage.admin.queue("events")
    stage.broker.directory.forget()
    await stage.broker.directory.refresh()
    late = fan_out(Draft(queue="events"), queue, stage.broker.directory.policy.broadcasts)
    assert late.unit is not None
    first = await stage.publish(queue="events")
    await stage.broker.broadcasts.subscribe("events", "new", start="earliest")
    agent = follower(stage)
    for _ in range(2):
        await follow(agent)
        await stage.travel(1_200)
    unguarded = replace(late, unit=replace(late.unit, expects=()))
    (published,) = await stage.store.enqueue([unguarded])
    await follow(agent)
    taken = [each.meta.parent_id for each in await stage.claim("events/new", limit=9)]
    assert taken == [first, published.id]
    assert await stage.store.documents(BROADCAST_CATCH_UP) == []
    await stage.publish(queue="events")
    await follow(agent)
    assert len(await stage.claim("events/new", limit=9)) == 1


async def test_a_subscription_can_start_at_a_moment(stage: Stage) -> None:
    await broadcast(stage)
    await stage.publish(queue="events")
    await stage.travel(10)
    start = await stage.store.now()
    await stage.travel(10)
    second = await stage.publish(queue="events")
    await stage.broker.broadcasts.subscribe("events", "a", start=start)
    await follow(follower(stage))
    assert [each.meta.parent_id for each in await stage.claim("events/a", limit=9)] == [second]


async def test_a_subscription_that_is_never_claimed_from_is_deleted(stage: Stage) -> None:
    await broadcast(stage)
    for name in ("live", "gone"):
        await stage.broker.broadcasts.subscribe("events", name, ttl=60)
    id = await stage.publish(queue="events")
    await stage.travel(50)
    await (await stage.another()).claim("events/live")
    await stage.travel(50)
    await follow(follower(stage))
    left = await stage.broker.broadcasts.list_subscriptions("events")
    assert [each.name for each in left] == ["live"]
    assert (await stage.record(id)).state is State.COMPLETED
