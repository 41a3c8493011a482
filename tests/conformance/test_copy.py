"""A store is copied to another one, of its kind and of another kind, without loss."""

import pytest

from penstock.agents.broadcast_follower import BroadcastFollower
from penstock.broker.copy_store import copy_store
from penstock.broker.views import SavedView, SavedViews
from penstock.model.copies import CopyCursor
from penstock.model.documents import Document
from penstock.model.human import HumanPattern
from penstock.model.message import Dedup, Draft, Nack, State
from penstock.model.queue import QueueState, Schedule
from penstock.model.search import Scan, Source
from penstock.model.store_types import Query
from penstock.model.workflow import NodeDraft
from tests.conformance import test_rule_ends as rule_ends
from tests.conformance.acts import SETTLING
from tests.conformance.copies import Pair, read_all
from tests.conformance.stage import LEASE_OVER, Stage, refusal

pytestmark = pytest.mark.anyio


async def live(stage: Stage) -> list[int]:
    """Messages in every place, with everything that can be kept about them."""
    await stage.queue("work", ordering="priority", max_attempts=7)
    await stage.queue("keyed")
    ids = await stage.publish_each(len(SETTLING), labels={"a": "b"}, correlation_id="c")
    for act, _ in SETTLING.values():
        await act(stage.broker, await stage.take())
    ids.append(await stage.dead(queue="work", name="letter", priority=3))
    ids.append(await stage.publish(queue="work", name="late", delay=3_600, ttl=7_200))
    ids.append(await stage.publish(queue="work", dedup=Dedup("once", None), lease=60.0))
    ids.append(await stage.publish(queue="work", dedup=Dedup("daily", 86_400.0)))
    ids += await stage.publish_each(3, queue="keyed", ordering_key="k")
    retried = await stage.take("keyed")
    await stage.broker.settle(retried, Nack("again", delay=5.0, traceback="at line 1"))
    done = await stage.take("work")
    await stage.broker.complete(done, b"42")
    report = Draft(queue="work", type="report")
    await stage.admin.schedule(Schedule("nightly", "0 3 * * *", report))
    await stage.admin.set_state("work", QueueState.PAUSED)
    return ids


async def test_a_copy_has_everything(pair: Pair) -> None:
    source, target = pair
    ids = await live(source)
    await copy_store(source.store, target.store)
    assert await read_all(target.store, ids) == await read_all(source.store, ids)
    for each in pair:
        work = await each.admin.queue("work")
        assert (work.state, work.settings.max_attempts) == (QueueState.PAUSED, 7)
        assert await each.store.named(work.id, "letter") is not None
        (schedule,) = await each.store.schedules()
        assert (schedule.name, schedule.queue_id) == ("nightly", work.id)
        assert len(await each.store.find(Query((await each.queue_id(),), correlation_id="c"))) > 1
        failed = await each.store.scan(Scan(Source.UNSUCCESSFUL))
        assert bool(failed.heads) == any(
            record.state in (State.FAILED, State.EXPIRED, State.CANCELLED)
            for record in await each.store.get_many(ids)
        )
    results = [await source.store.result(id) for id in ids]
    assert b"42" in results
    assert [await target.store.result(id) for id in ids] == results


async def test_the_copy_goes_on_where_the_source_stopped(pair: Pair) -> None:
    source, target = pair
    ids = await live(source)
    await copy_store(source.store, target.store)
    await target.admin.set_state("work", QueueState.ACTIVE)
    again = Draft(queue="work", dedup=Dedup("daily", 86_400.0))
    outcome = await target.broker.publish(again)
    assert (outcome.id, outcome.duplicate) == (ids[len(SETTLING) + 3], True)
    assert await refusal(target.broker.publish(Draft(queue="work", name="late"))) == "NAME_TAKEN"
    fresh = await target.publish()
    assert fresh > max(ids)
    # The retried head holds its key; the others follow in order.
    assert await target.drain("keyed") == []
    await target.travel(LEASE_OVER)
    await target.promote()
    assert await target.drain("keyed") == ids[-3:]


async def test_finished_messages_are_not_claimed_again(pair: Pair) -> None:
    source, target = pair
    ids = [await source.completed() for _ in range(3)]
    await copy_store(source.store, target.store)
    assert await target.claim() == []
    assert [await target.state(id) for id in ids] == [State.COMPLETED] * 3
    assert await target.places() == {"ended": 3}


async def test_a_page_restored_twice_is_written_once(pair: Pair) -> None:
    source, target = pair
    ids = await source.publish_each(5)
    await source.drain()
    ids += await source.publish_each(5)
    queue_ids = {await source.queue_id(): await target.queue_id()}
    page = await source.store.dump(CopyCursor(None, 0), 7)
    assert [life.message.id for life in page.lives] == ids[:7]
    assert await target.store.restore(page, queue_ids) == 7
    taken = await target.take()
    await target.broker.complete(taken)
    assert await target.store.restore(page, queue_ids) == 0
    assert await target.places() == {"ready": 1, "ended": 6}
    assert len(await target.store.recent(0, 100)) == 6


async def test_a_copy_that_stopped_is_resumed(pair: Pair) -> None:
    source, target = pair
    ids = await live(source)

    class Stopped(Exception):
        pass

    def stop(written: int) -> None:
        if written:
            raise Stopped

    with pytest.raises(Stopped):
        await copy_store(source.store, target.store, report=stop)
    # Until it is whole, the copy serves no consumer.
    assert await target.claim() == []
    plan = await copy_store(source.store, target.store)
    assert plan.resumes
    assert await read_all(target.store, ids) == await read_all(source.store, ids)
    assert await refusal(copy_store(source.store, target.store)) == "INVALID_STATE"


async def test_a_store_in_use_is_no_target(pair: Pair) -> None:
    source, target = pair
    await source.publish()
    await target.publish()
    before = await target.store.census()
    assert await refusal(copy_store(source.store, target.store)) == "INVALID_STATE"
    assert await target.store.census() == before
    assert await refusal(copy_store(source.store, source.store)) == "INVALID_INPUT"


async def test_claimed_messages_are_refused_unless_they_may_be_ready(pair: Pair) -> None:
    source, target = pair
    first = await source.dead()
    await source.claim("_dead_letter")
    second = await source.publish()
    await source.take()
    assert await refusal(copy_store(source.store, target.store)) == "INVALID_STATE"
    await copy_store(source.store, target.store, release_claimed=True)
    assert await target.state(first) is State.DEAD
    assert await target.counters(second) == (State.READY, 0, 1)
    leased = await target.take()
    assert (leased.id, leased.deliveries) == (second, 2)


async def test_keys_and_roles_are_copied(pair: Pair) -> None:
    source, target = pair
    role = Document(kind="role", name="default/reader", body=b"{}")
    await source.store.save_documents([role])
    await copy_store(source.store, target.store)
    found = await target.store.document("role", "default/reader")
    assert found is not None
    assert found.body == b"{}"


async def test_rules_work_in_the_copy_and_do_not_fire_again_on_old_ends(pair: Pair) -> None:
    source, target = pair
    await source.queue("after")
    await rule_ends.add_rule(source, "vip", when="message.priority > 1")
    await rule_ends.add_rule(source, "end", on="completed")
    await source.travel(1)
    await source.completed()
    await rule_ends.follow(rule_ends.follower(source))
    await source.broker.complete(await source.take("after"))
    await source.travel(1)
    await copy_store(source.store, target.store)
    agent = rule_ends.follower(target)
    await rule_ends.follow(agent)
    assert await target.claim("after") == []
    assert (await target.broker.publish(Draft(priority=2))).routed == ("after",)
    await target.drain("after")
    await target.travel(5)
    end = await target.completed()
    await rule_ends.follow(agent)
    assert (await target.take("after")).meta.parent_id == end
    assert [each.rule.name for each in await target.broker.rules.list_rules()] == ["end", "vip"]


async def test_subscriptions_of_a_broadcast_queue_are_copied(pair: Pair) -> None:
    source, target = pair
    await source.queue("events", kind="broadcast")
    for name in ("a", "b"):
        await source.broker.broadcasts.subscribe("events", name, ttl=3_600.0)
    old = await source.publish(queue="events")
    await copy_store(source.store, target.store)
    new = await target.publish(queue="events")
    for name in ("a", "b"):
        taken = await target.claim(f"events/{name}", limit=9)
        assert [each.meta.parent_id for each in taken] == [old, new]
    # Messages refer to versions of the set: those from before are copied to a new one.
    await target.broker.broadcasts.subscribe("events", "c", start="earliest")
    follower = BroadcastFollower(target.store, target.broker.directory, "me")
    while not await follower.tick():
        pass
    taken = await target.claim("events/c", limit=9)
    assert [each.meta.parent_id for each in taken] == [old, new]


async def test_a_subscription_that_catches_up_is_not_copied(pair: Pair) -> None:
    source, target = pair
    await source.queue("events", kind="broadcast")
    await source.broker.broadcasts.subscribe("events", "a", start="earliest")
    assert await refusal(copy_store(source.store, target.store)) == "INVALID_STATE"
    assert await target.store.census() == []


async def test_alerts_patterns_workflows_and_views_are_copied(pair: Pair) -> None:
    source, target = pair
    await source.queue("work")
    await source.broker.alerts.add("pager", "https://example.org/")
    spec = {"title": "Ship {{order}}?"}
    await source.broker.inbox.patterns.save(HumanPattern(name="check", spec=spec))
    await SavedViews(source.store, source.admin).save(SavedView("late", "state:dead"))
    nodes = [NodeDraft(label="first", draft=Draft(queue="work"))]
    started = await source.broker.workflows.start("night", nodes)
    await copy_store(source.store, target.store)
    assert (await target.broker.alerts.get("pager")).alert.url == "https://example.org/"
    (pattern,) = await target.broker.inbox.patterns.list_patterns()
    assert pattern.spec == spec
    (view,) = await SavedViews(target.store, target.admin).list()
    assert view.filter == "state:dead"
    flow = await target.broker.workflows.get(started.id)
    assert [node.label for node in flow.workflow.nodes] == ["first"]


async def test_a_rank_that_changed_is_copied(pair: Pair) -> None:
    source, target = pair
    queue_id = await source.queue("work", ordering="priority")
    low = await source.publish(queue="work")
    high = [await source.publish(queue="work", priority=5) for _ in range(2)]
    await source.travel(60)
    assert await source.store.age(queue_id, 1.0, 10) == 1
    await copy_store(source.store, target.store)
    assert await target.drain("work") == [low, *high]


async def test_no_id_or_fence_of_the_source_is_given_away_again(pair: Pair) -> None:
    source, target = pair
    kept = await source.publish()
    await source.broker.settle(await source.take(), Nack(delay=0.0))
    held = await source.take()
    await source.broker.settle(held, Nack(delay=0.0))
    gone = await source.completed(queue="work") if await source.queue("work") else 0
    await source.travel(60)
    assert await source.prune(1.0, "work") == 1
    await copy_store(source.store, target.store)
    assert await target.publish() > gone > kept
    assert (await target.take()).fence > held.fence
    assert await refusal(target.admin.get(gone)) == "ARCHIVED"
