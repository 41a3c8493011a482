"""Routing rules on publish: what they make of a message, on every path, all or nothing."""

from typing import Any

import pytest

from penstock.agents.human_reminder import HumanReminder
from penstock.agents.scheduler import Scheduler
from penstock.broker.credentials import Credentials
from penstock.broker.queue_cache import QueueCache
from penstock.errors import (
    CannotGovern,
    Conflict,
    IdempotencyConflict,
    InvalidInput,
    NameTaken,
    NotFound,
    QueueFull,
)
from penstock.model.human import HumanPattern
from penstock.model.message import Dedup, Draft, State
from penstock.model.queue import QueueState, Schedule
from penstock.model.routing import StoredRule
from penstock.rules.rule_checks import parse_rule
from tests.conformance.stage import Stage
from tests.conformance.test_human import ADMIN, inbox_of

pytestmark = pytest.mark.anyio


async def add_rule(stage: Stage, name: str = "r", **given: Any) -> StoredRule:
    return await stage.broker.rules.save(parse_rule({"name": name, "queue": "default", **given}))


PREMIUM: dict[str, Any] = {
    "when": "message.labels.customer_tier == 'premium'",
    "do": [{"route": "vip"}],
}


async def test_a_matching_message_is_in_the_target_queue_only(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, **PREMIUM)
    draft = Draft(labels={"customer_tier": "premium"}, correlation_id="c", body=b"1")
    published = await stage.broker.publish(draft)
    plain = await stage.publish(labels={"customer_tier": "basic"})
    assert published.routed == ("vip",)
    assert await stage.drain() == [plain]
    leased = await stage.take("vip")
    assert (leased.id, leased.meta.correlation_id) == (published.id, "c")
    assert (leased.meta.causation_id, leased.meta.path) == ("rule:r@1", ("r@1",))


async def test_of_two_matching_rules_only_the_first_by_order_fires(stage: Stage) -> None:
    await stage.queue("first")
    await stage.queue("second")
    await add_rule(stage, "a", order=2, do=[{"route": "second"}])
    await add_rule(stage, "z", order=1, do=[{"route": "first"}])
    id = await stage.publish()
    assert await stage.drain("second") == []
    assert await stage.drain("first") == [id]


async def test_each_message_of_a_batch_is_routed_for_itself(stage: Stage) -> None:
    await stage.queue("vip")
    await stage.queue("copies")
    await add_rule(stage, when="message.body.n > 1", do=[{"copy": "copies"}, {"route": "vip"}])
    drafts = [Draft(body=b'{"n": %d}' % n) for n in (1, 2, 3)] + [Draft(body=b"none")]
    answers = await stage.broker.publish_many(drafts)
    assert [each.routed for each in answers] == [(), ("vip", "copies"), ("vip", "copies"), ()]
    assert await stage.drain() == [answers[0].id, answers[3].id]
    copies = await stage.claim("copies", limit=9)
    assert [each.meta.parent_id for each in copies] == [answers[1].id, answers[2].id]
    assert await stage.drain("vip") == [answers[1].id, answers[2].id]


async def test_keys_belong_to_the_queue_and_the_body_that_were_sent(stage: Stage) -> None:
    await stage.queue("vip")
    await stage.queue("copies")
    await add_rule(stage, do=[{"transform": "{m: n}"}, {"copy": "copies"}, {"route": "vip"}])
    draft = Draft(body=b'{"n": 1}', dedup=Dedup("k"))
    first = await stage.broker.publish(draft)
    again = await stage.broker.publish(draft)
    assert (again.id, again.duplicate, again.routed) == (first.id, True, ())
    with pytest.raises(IdempotencyConflict):
        await stage.broker.publish(Draft(body=b'{"n": 2}', dedup=Dedup("k")))
    named = await stage.publish(b'{"n": 1}', name="n")
    with pytest.raises(NameTaken):
        await stage.publish(b'{"n": 1}', name="n")
    assert (await stage.admin.get("default/n")).message.id == named
    assert len(await stage.claim("copies", limit=9)) == 2
    assert [each.body for each in await stage.claim("vip", limit=9)] == [b'{"m":1}'] * 2


async def test_a_refused_first_output_refuses_the_draft_and_its_copies(stage: Stage) -> None:
    await stage.queue("full", max_depth=1)
    await stage.queue("copies", max_depth=1)
    await add_rule(stage, do=[{"copy": "copies"}, {"route": "full"}])
    await stage.publish()
    with pytest.raises(QueueFull):
        await stage.publish()
    assert await stage.places("copies") == {"ready": 1}
    await stage.drain("full")
    await stage.publish()
    assert await stage.places("copies") == {"ready": 1, "dead": 1}


async def test_an_archived_message_ends_and_a_dead_one_waits_for_an_operator(
    stage: Stage,
) -> None:
    await add_rule(stage, "a", type="noise", do=[{"archive": True}])
    await add_rule(stage, "d", type="fraud", do=[{"dead": "fraud_suspected"}])
    noise, fraud = await stage.publish(type="noise"), await stage.publish(type="fraud")
    assert await stage.claim() == []
    record = await stage.record(noise)
    assert (record.state, record.reason) == (State.COMPLETED, "archived_by_rule")
    record = await stage.record(fraud)
    assert (record.state, record.reason) == (State.DEAD, "fraud_suspected")


async def test_a_rule_whose_target_does_not_accept_is_left_out_or_kills(stage: Stage) -> None:
    await stage.queue("gone")
    await add_rule(stage, "skip", order=1, type="a", do=[{"route": "gone"}])
    await add_rule(stage, "dead", order=2, type="b", do=[{"route": "gone"}], on_error="dead")
    await stage.admin.set_state("gone", QueueState.DRAINING)
    kept, dead = await stage.publish(type="a"), await stage.publish(type="b")
    assert await stage.drain() == [kept]
    record = await stage.record(dead)
    assert (record.state, record.reason) == (State.DEAD, "rule_error")


async def test_a_rule_whose_target_is_in_an_archived_scope_is_left_out(stage: Stage) -> None:
    await stage.admin.create_scope("shop")
    await stage.admin.create_queue("gone", scope="shop")
    await Credentials(stage.store).save_trust("default", "shop", "default", ["publish"])
    await add_rule(stage, do=[{"route": "shop:gone"}])
    await stage.broker.scopes.archive("shop")
    id = await stage.publish()
    assert await stage.drain() == [id]


async def test_a_rule_whose_message_the_target_refuses_is_an_error_of_the_rule(
    stage: Stage,
) -> None:
    await stage.queue("small", max_body=2)
    await add_rule(stage, do=[{"route": "small"}])
    id = await stage.publish(b"too large")
    assert await stage.drain() == [id]


async def test_a_schedule_is_routed_and_published_once_per_tick(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, do=[{"route": "vip"}])
    await stage.admin.schedule(Schedule("s", "* * * * *", Draft()))
    await stage.travel(60)
    for _ in range(2):
        await Scheduler(stage.store, QueueCache(stage.store), "me").tick()
    assert len(await stage.claim("vip", limit=9)) == 1


async def test_a_rule_that_fires_too_often_is_suspended_for_all_processes(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, do=[{"route": "vip"}], limit=2)
    for _ in range(4):
        await stage.publish()
    assert await stage.places("vip") == {"ready": 3}
    await stage.broker.directory.refresh()
    other = await stage.another()
    stored = await other.broker.rules.get("r")
    assert stored.suspended == "it fired more than 2 times in a minute"
    await other.publish()
    assert await stage.places() == {"ready": 2}
    await other.broker.rules.enable("r")
    await other.publish()
    assert await stage.places("vip") == {"ready": 4}


async def test_a_suspended_rule_can_hold_back_what_it_matches(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, limit=1, on_limit="hold", **PREMIUM)
    premium = Draft(labels={"customer_tier": "premium"})
    await stage.broker.publish_many([premium, premium])
    with pytest.raises(CannotGovern, match="rule 'r' is suspended"):
        await stage.broker.publish(premium)
    await stage.publish(labels={"customer_tier": "basic"})
    assert await stage.places("vip") == {"ready": 2}


async def test_every_save_is_a_version_and_the_message_tells_which(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, do=[{"set": {"priority": 1}}])
    await add_rule(stage, do=[{"set": {"priority": 2}}])
    await stage.publish()
    assert (await stage.take()).meta.path == ("r@2",)
    versions = await stage.broker.rules.versions("r")
    assert [(each.version, each.rule.do[0].set) for each in versions] == [
        (2, {"priority": 2}),
        (1, {"priority": 1}),
    ]
    await stage.broker.rules.enable("r", enabled=False)
    await stage.publish()
    assert (await stage.take()).meta.path == ()
    await stage.broker.rules.delete("r")
    assert await stage.broker.rules.list_rules() == []


async def test_a_circle_of_routes_is_refused_when_it_is_saved(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, "there", do=[{"route": "vip"}])
    back = parse_rule({"name": "back", "queue": "vip", "do": [{"route": "default"}]})
    with pytest.raises(InvalidInput, match="cycle of unconditional routes"):
        await stage.broker.rules.save(back)


async def test_a_dry_run_writes_nothing_and_tells_what_would_happen(stage: Stage) -> None:
    await stage.queue("vip")
    await add_rule(stage, "early", order=1, type="b", do=[{"set": {"priority": 1}}])
    ids = [await stage.publish(type=each, labels={"x": "1"}) for each in "ab"]
    rule = parse_rule({"name": "r", "when": "message.labels.x == '1'", "do": [{"route": "vip"}]})
    result = await stage.broker.rules.test(rule)
    assert (result.tried, result.matched, result.shadowed) == (2, 1, 1)
    assert [(each.id, each.outputs, each.note) for each in result.effects] == [
        (str(ids[1]), [], "early"),
        (str(ids[0]), ["vip"], ""),
    ]
    assert await stage.places("vip") == {}
    (early,) = await stage.broker.rules.coverage()
    assert (early.name, early.seen, early.matched, early.never) == ("early", 1, 1, False)


async def test_a_dry_run_of_a_rule_on_cancelled_leaves_out_moved_messages(stage: Stage) -> None:
    await stage.queue("vip")
    await stage.admin.move(await stage.publish(), "vip")
    cancelled = await stage.publish()
    await stage.admin.cancel(cancelled)
    rule = parse_rule({"name": "r", "on": "cancelled", "do": [{"route": "vip"}]})
    result = await stage.broker.rules.test(rule)
    assert [each.id for each in result.effects] == [str(cancelled)]


async def test_coverage_counts_what_a_rule_routed_to_another_queue(stage: Stage) -> None:
    await stage.queue("vip")
    await stage.queue("audit")
    await add_rule(stage, type="a", do=[{"copy": "audit"}, {"route": "vip"}])
    await add_rule(stage, "never", type="c", do=[{"route": "vip"}])
    for each in "ab":
        await stage.publish(type=each)
    covered = await stage.broker.rules.coverage()
    assert {each.name: (each.seen, each.matched) for each in covered} == {
        "r": (1, 1), "never": (0, 0),
    }  # fmt: skip


async def test_a_rule_asks_a_person_and_the_message_goes_its_own_way(stage: Stage) -> None:
    inbox = inbox_of(stage)
    spec = {"title": "Order {{order}}?", "assign": {"roles": ["fraud"]}}
    ask = {"escalate": {"pattern": "check", "parameters": {"order": "message.body.order"}}}
    with pytest.raises(NotFound, match="no pattern named 'check'"):
        await add_rule(stage, do=[ask])
    await inbox.patterns.save(HumanPattern(name="check", spec=spec))
    with pytest.raises(InvalidInput, match="has the parameters order, not none"):
        await add_rule(stage, do=[{"escalate": {"pattern": "check"}}])
    await add_rule(stage, do=[ask, {"dead": "fraud_suspected"}])
    # It does not apply to the step itself.
    await add_rule(stage, "z", queue="*", do=[{"archive": True}])
    draft = Draft(body=b'{"order": 7}', correlation_id="c")
    published = await stage.broker.publish(draft)
    assert published.routed == ("default", "_human")
    (found,) = await inbox.list_steps(ADMIN, view="all")
    assert (found.step.spec.title, found.step.requester) == ("Order 7?", "rule:r@1")
    assert (found.parent_id, found.correlation_id) == (published.id, "c")
    # The message is dead, but the step does not wait for it.
    await stage.store.resume_held()
    await HumanReminder(stage.store, stage.broker.directory, "test").tick()
    assert all(each.ok for each in await stage.store.examine())
    decided = await inbox.decide(found.step.id, ADMIN, "approve")
    assert (decided.state, (await stage.record(published.id)).state) == (
        State.COMPLETED, State.DEAD,
    )  # fmt: skip
    with pytest.raises(Conflict, match="rule 'r' escalates"):
        await inbox.patterns.delete("check")


async def test_a_changed_pattern_is_used_and_one_that_does_not_fit_is_an_error(
    stage: Stage,
) -> None:
    inbox = inbox_of(stage)
    ask = {"escalate": {"pattern": "check", "parameters": {"order": "message.body.order"}}}
    for title in ("Order {{order}}?", "Really order {{order}}?"):
        spec = {"title": title, "assign": {"roles": ["fraud"]}}
        await inbox.patterns.save(HumanPattern(name="check", spec=spec))
        await add_rule(stage, do=[ask], on_error="dead")
    stage.broker.directory.forget()
    await stage.publish(b'{"order": 7}')
    (found,) = await inbox.list_steps(ADMIN, view="all")
    assert (found.step.spec.title, found.step.spec.pattern) == ("Really order 7?", "check@2")
    record = await stage.record(await stage.publish(b'{"order": {"a": 1}}'))
    assert (record.state, record.reason) == (State.DEAD, "rule_error")
    assert len(await inbox.list_steps(ADMIN, view="all")) == 1
