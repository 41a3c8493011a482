"""Governing a batch of drafts: what one draft tells about the ones after it."""

from typing import Any

from penstock.broker.governance import govern
from penstock.broker.policy import Policy
from penstock.broker.routing.monitor import RuleMonitor
from penstock.broker.routing.policy import RulePolicy
from penstock.model.message import Draft
from penstock.model.queue import Queue, Scope
from penstock.model.routing import StoredRule
from penstock.model.store_types import Entry
from penstock.rules.cel import get_engine
from penstock.rules.rule_book import CompiledRule, RuleBook
from penstock.rules.rule_checks import parse_rule

SCOPE = Scope(1, "default", "default")
QUEUES = {
    ("default", "default", name): Queue(number, SCOPE, name) for number, name in enumerate("ab", 1)
}
PLACE = QUEUES["default", "default", "a"]


def make_policy(*rules: dict[str, Any]) -> Policy:
    book = RuleBook(
        CompiledRule(
            StoredRule(rule=parse_rule({"queue": "a", **given}), tenant="default"), get_engine()
        )
        for given in rules
    )
    return Policy({}, RulePolicy({("default", "default"): book}, QUEUES, {}, RuleMonitor()))


def route_all(policy: Policy, *drafts: dict[str, Any]) -> list[str]:
    """Returns "same" or "routed" for each draft."""
    governed = govern([Draft(queue="a", **each) for each in drafts], PLACE, policy)
    return ["routed" if isinstance(each, Entry) else "same" for each in governed]


def test_drafts_that_differ_in_what_a_condition_reads_are_evaluated_each() -> None:
    policy = make_policy(
        {"name": "gold", "when": "message.labels.tier == 'gold'", "do": [{"route": "b"}]}
    )
    silver, gold = {"labels": {"tier": "silver"}}, {"labels": {"tier": "gold"}}
    assert route_all(policy, silver, gold, silver, {}) == ["same", "routed", "same", "same"]


def test_drafts_of_other_types_meet_other_rules() -> None:
    policy = make_policy(
        {"name": "x", "type": "x", "do": [{"route": "b"}]},
        {"name": "y", "type": "y", "when": "message.priority > 3", "do": [{"route": "b"}]},
    )
    assert route_all(policy, {"type": "y"}, {"type": "x"}, {"type": "z"}, {"type": "x"}) == [
        "same",
        "routed",
        "same",
        "routed",
    ]


def test_bodies_that_a_condition_reads_are_evaluated_each() -> None:
    policy = make_policy(
        {"name": "large", "when": "message.body.n > 1", "do": [{"route": "b"}]},
        {"name": "long", "when": "message.size > 100", "do": [{"route": "b"}]},
    )
    bodies = (b'{"n": 1}', b'{"n": 2}', b'{"n": 1}', b'{"n": 1%b}' % (b" " * 100))
    drafts = [{"body": body, "content_type": "application/json"} for body in bodies]
    assert route_all(policy, *drafts) == ["same", "routed", "same", "routed"]


def test_a_missing_field_is_counted_for_each_draft_of_a_batch() -> None:
    policy = make_policy(
        {"name": "gold", "when": "message.labels.tier == 'gold'", "do": [{"route": "b"}]}
    )
    assert route_all(policy, {}, {}, {}) == ["same"] * 3
    assert policy.rules.monitor.totals["missing_field", "gold"] == 3


def test_a_loop_is_counted_for_each_draft_of_a_batch() -> None:
    policy = make_policy({"name": "on", "do": [{"route": "b"}]})
    looped, fresh = {"path": ("on@1",)}, {"path": ()}
    assert route_all(policy, looped, fresh, looped) == ["same", "routed", "same"]
    assert policy.rules.monitor.totals["routing_loop", "on"] == 2
