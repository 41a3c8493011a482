"""Rules on the end of a message fire once, whatever fails in between."""

from typing import Any

import pytest

from penstock.agents.rule_follower import RuleFollower
from penstock.broker.queue_cache import QueueCache
from penstock.model.changes import Change, Changed
from penstock.model.heads import HeadFeed
from penstock.model.human import HumanPattern
from penstock.model.message import SettleReject, State
from penstock.model.routing import FIRED, StoredRule
from penstock.model.store_types import Cursor
from penstock.rules.rule_checks import parse_rule
from tests.conformance.stage import Stage
from tests.conformance.test_bulk import start
from tests.conformance.test_human import ADMIN, inbox_of

pytestmark = pytest.mark.anyio


async def add_rule(stage: Stage, name: str = "r", **given: Any) -> StoredRule:
    rule = {"name": name, "queue": "default", "do": [{"route": "after"}], **given}
    return await stage.broker.rules.save(parse_rule(rule))


def follower(stage: Stage) -> RuleFollower:
    return RuleFollower(stage.store, QueueCache(stage.store), "me")


async def follow(agent: RuleFollower) -> None:
    while not await agent.tick():
        pass


async def test_an_end_publishes_a_message_that_tells_its_cause(stage: Stage) -> None:
    await stage.queue("after")
    await add_rule(stage, on="completed", do=[{"set": {"labels.x": "1"}}, {"route": "after"}])
    id = await stage.completed(body=b"b", type="t", correlation_id="c")
    agent = follower(stage)
    await follow(agent)
    await follow(agent)
    (leased,) = await stage.claim("after", limit=9)
    meta = leased.meta
    assert (leased.type, leased.body, meta.correlation_id, meta.labels) == (
        "t",
        b"b",
        "c",
        {"x": "1"},
    )
    assert (meta.parent_id, meta.causation_id, meta.path) == (id, str(id), ("r@1",))
    assert await stage.store.documents(FIRED) == []


async def test_only_ends_since_the_rule_was_first_enabled_fire(stage: Stage) -> None:
    await stage.queue("after")
    await stage.completed()
    await stage.travel(1)
    await add_rule(stage, on="completed")
    last = await stage.completed()
    await follow(follower(stage))
    (leased,) = await stage.claim("after", limit=9)
    assert leased.meta.parent_id == last


async def test_a_rule_sees_the_state_and_reason_of_its_trigger(stage: Stage) -> None:
    await stage.queue("after")
    await add_rule(stage, on="dead", when="message.reason == 'rejected' && message.attempts == 1")
    await stage.completed()
    dead = await stage.dead()
    await follow(follower(stage))
    assert [each.meta.parent_id for each in await stage.claim("after", limit=9)] == [dead]


async def test_a_message_that_a_rule_archived_fires_nothing(stage: Stage) -> None:
    await stage.queue("after")
    await add_rule(stage, "a", do=[{"archive": True}])
    await add_rule(stage, "b", on="completed")
    await stage.publish()
    await follow(follower(stage))
    assert await stage.claim("after") == []


async def test_a_message_that_is_moved_or_edited_fires_nothing(stage: Stage) -> None:
    for name in ("after", "other"):
        await stage.queue(name)
    await add_rule(stage, on="cancelled")
    await stage.admin.redrive(await stage.dead(), body=b"edited")
    await stage.admin.move(await stage.publish(), "other")
    edited = await stage.admin.edit(await stage.publish(), b"edited")
    await stage.publish(type="bulk")
    action = await start(stage, "move", "queue:default type:bulk", queue="other")
    await stage.admin.cancel(edited.id)
    await follow(follower(stage))
    assert action.counts.done == 1
    assert [each.meta.parent_id for each in await stage.claim("after", limit=9)] == [edited.id]


async def test_failures_can_be_archived_in_another_queue(stage: Stage) -> None:
    await stage.queue("after")
    await add_rule(stage, on="dead", do=[{"route": "after"}, {"archive": True}])
    await stage.dead(body=b"lost")
    await follow(follower(stage))
    (record,) = await stage.admin.find("after")
    assert (record.state, record.reason) == (State.COMPLETED, "archived_by_rule")
    assert record.message.body == b"lost"


async def test_an_end_rule_that_feeds_its_own_queue_stops_after_one_turn(stage: Stage) -> None:
    await add_rule(stage, on="completed", do=[{"route": "default"}])
    await stage.completed()
    agent = follower(stage)
    for _ in range(3):
        await follow(agent)
        await stage.drain()
    assert len(await stage.admin.find("default")) == 2


async def test_two_followers_fire_once(stage: Stage) -> None:
    await stage.queue("after")
    await add_rule(stage, on="completed")
    agents = [follower(stage), follower(await stage.another())]
    for _ in range(5):
        await stage.completed()
        for agent in agents:
            await agent.tick()
    for agent in agents:
        await follow(agent)
    assert len(await stage.claim("after", limit=99)) == 5


@pytest.mark.parametrize("after", range(5))
async def test_a_follower_that_dies_anywhere_neither_loses_nor_repeats(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Every write of the follower fails once, before or after it took effect."""
    await stage.queue("after")
    await add_rule(stage, on="completed")
    await add_rule(stage, "d", on="dead")
    await stage.completed()
    leased = await take_new(stage)
    await stage.broker.settle(leased, SettleReject("no"))
    writes = 0
    advance = stage.store.advance

    async def fail_once(change: Change) -> Changed | None:
        nonlocal writes
        writes += 1
        if writes == after + 1:
            if after % 2:
                await advance(change)
            raise RuntimeError("killed")
        return await advance(change)

    monkeypatch.setattr(stage.store, "advance", fail_once)
    for _ in range(3):
        try:
            await follow(follower(stage))
        except RuntimeError:
            continue
    assert len(await stage.claim("after", limit=9)) == 2


async def test_ends_that_the_feed_does_not_tell_yet_fire_at_once_and_not_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long transaction holds the feed back. Each follower is a new process."""
    await stage.queue("after")
    await add_rule(stage, on="completed")
    await stage.completed()
    await follow(follower(stage))

    async def hold_back(cursor: Cursor, limit: int) -> HeadFeed:
        return HeadFeed([], [], {}, {}, cursor)

    with monkeypatch.context() as patched:
        patched.setattr(stage.store, "heads", hold_back)
        for fired in (2, 3):
            await stage.completed()
            first, second = follower(stage), follower(stage)
            for agent in (first, second, first):
                await follow(agent)
            assert await stage.places("after") == {"ready": fired}
    assert len(await stage.store.documents(FIRED)) == 2
    await follow(follower(stage))
    assert await stage.places("after") == {"ready": 3}
    assert await stage.store.documents(FIRED) == []


async def test_of_a_quick_and_a_sure_pass_at_once_only_one_fires(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sure pass has read what fired when the quick pass of another process fires."""
    await stage.queue("after")
    await add_rule(stage, on="completed")
    await stage.completed()
    agent, other, advance = follower(stage), follower(stage), stage.store.advance
    await other.directory.refresh()

    async def be_late(change: Change) -> Changed | None:
        monkeypatch.undo()
        assert await other._look_quickly() == 1
        return await advance(change)

    monkeypatch.setattr(stage.store, "advance", be_late)
    await follow(agent)
    assert await stage.places("after") == {"ready": 1}


async def take_new(stage: Stage) -> Any:
    await stage.publish()
    return await stage.take()


async def test_an_end_asks_a_person_once(stage: Stage) -> None:
    spec = {"title": "Look at {{type}}", "assign": {"roles": ["ops"]}}
    await inbox_of(stage).patterns.save(HumanPattern(name="look", spec=spec))
    ask = {"escalate": {"pattern": "look", "parameters": {"type": "message.type"}}}
    await add_rule(stage, on="completed", do=[ask])
    id = await stage.completed(type="t")
    await follow(follower(stage))
    await follow(follower(stage))
    (found,) = await inbox_of(stage).list_steps(ADMIN, view="all")
    assert (found.step.spec.title, found.parent_id) == ("Look at t", id)
    assert all(each.ok for each in await stage.store.examine())
    decided = await inbox_of(stage).decide(found.step.id, ADMIN, "approve")
    assert decided.state is State.COMPLETED
