"""Rules as pure functions: matching, actions, loops, and the checks before a save."""

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.errors import Forbidden, InvalidInput, NotFound
from penstock.model.human import HumanPattern
from penstock.model.message import Draft, State
from penstock.model.queue import Queue, Scope
from penstock.model.routing import StoredRule, Trigger
from penstock.rules.access import EVERYTHING, Access, parse_grant
from penstock.rules.cel import CelEngine, EvaluationError, find_read_fields, get_engine
from penstock.rules.routing import Routing, RuleRouter
from penstock.rules.rule_book import CompiledRule, RuleBook
from penstock.rules.rule_checks import (
    check_cycles,
    check_patterns,
    check_targets,
    parse_rule,
    split_target,
)
from penstock.rules.rule_values import ALL_FIELDS

SCOPE = Scope(1, "default", "default")
QUEUES = {name: Queue(number, SCOPE, name) for number, name in enumerate("abcd", 1)}

PATTERN = HumanPattern(
    name="check", spec={"title": "Order {{order}}?", "assign": {"roles": ["fraud"]}}
)


def compile_rule(**given: Any) -> CompiledRule:
    return CompiledRule(StoredRule(rule=parse_rule(given), tenant="default"), get_engine())


class Targets:
    """The queues a to d, and one pattern."""

    def find_target(self, stored: StoredRule, target: str) -> Queue:
        try:
            return QUEUES[split_target(target, stored.rule.scope)[1]]
        except KeyError:
            raise EvaluationError(f"no queue {target}") from None

    def find_pattern(self, stored: StoredRule, name: str) -> HumanPattern:
        return PATTERN

    def find_inbox(self, stored: StoredRule) -> Queue:
        return Queue(9, SCOPE, "_human")


def route(rules: Iterable[CompiledRule], **fields: Any) -> Routing:
    book = RuleBook(rules)
    router = RuleRouter(get_engine(), lambda queue: book, Targets(), lambda: False)
    draft = Draft(**{"queue": "a", **fields})
    return router.route(draft, QUEUES[draft.queue])


def places(routing: Routing) -> list[str]:
    return [each.queue.name for each in routing.outputs]


GOLD = {"when": "message.labels.tier == 'gold'"}


def test_the_first_match_wins_and_the_message_remembers_it() -> None:
    rules = [
        compile_rule(name="second", queue="a", order=2, do=[{"route": "c"}]),
        compile_rule(name="first", queue="a", order=1, do=[{"route": "b"}], **GOLD),
    ]
    routing = route(rules, labels={"tier": "gold"})
    assert places(routing) == ["b"]
    assert routing.outputs[0].draft.path == ("first@1",)


def test_a_routed_message_meets_the_rules_of_the_queue_it_comes_to() -> None:
    rules = [
        compile_rule(name="1", queue="a", do=[{"route": "b"}]),
        compile_rule(name="2", queue="b", do=[{"route": "c"}]),
    ]
    routing = route(rules)
    assert (places(routing), routing.outputs[0].draft.path) == (["c"], ("1@1", "2@1"))


def test_a_rule_applies_only_to_the_queues_and_types_it_names() -> None:
    rules = [compile_rule(name="r", queue="b*", type="mail.*", do=[{"route": "c"}])]
    assert places(route(rules, type="mail.send")) == ["a"]
    assert places(route(rules, queue="b", type="sms.send")) == ["b"]
    assert places(route(rules, queue="b", type="mail.send")) == ["c"]


def test_a_missing_field_is_no_match_and_is_counted() -> None:
    routing = route([compile_rule(name="r", do=[{"route": "b"}], **GOLD)])
    assert (places(routing), routing.missing, routing.faults) == (["a"], ["r"], [])


def test_continue_applies_the_next_rule_to_the_changed_message() -> None:
    rules = [
        compile_rule(
            name="1", queue="a", do=[{"set": {"labels.tier": "gold"}}], **{"continue": True}
        ),
        compile_rule(name="2", queue="a", do=[{"route": "b"}], **GOLD),
    ]
    routing = route(rules)
    assert places(routing) == ["b"]
    assert routing.outputs[0].draft.path == ("1@1", "2@1")


def test_a_circle_of_conditional_routes_stops_where_a_rule_would_fire_again() -> None:
    rules = [
        compile_rule(name="there", queue="a", when="true", do=[{"route": "b"}]),
        compile_rule(name="back", queue="b", when="true", do=[{"route": "a"}]),
    ]
    routing = route(rules)
    assert (places(routing), routing.loops) == (["a"], [("there", 1)])


def test_a_rule_that_explodes_is_an_error_and_changes_nothing() -> None:
    rules = [
        compile_rule(name="few", queue="a", do=[{"copy": "b"}] * 8, **{"continue": True}),
        compile_rule(name="many", queue="a", do=[{"copy": "b"}] * 8),
    ]
    routing = route(rules)
    assert places(routing) == ["a", *["b"] * 8]
    assert [each.rule for each in routing.faults] == ["many"]


def test_a_rule_with_on_error_dead_keeps_the_message_as_a_dead_letter() -> None:
    rules = [compile_rule(name="r", queue="a", do=[{"transform": "x"}], on_error="dead")]
    (output,) = route(rules, body=b"not json").outputs
    assert (output.state, output.reason) == (State.DEAD, "rule_error")


def test_copies_carry_the_message_but_not_its_name() -> None:
    rules = [compile_rule(name="r", queue="a", do=[{"copy": "b"}, {"route": "c"}])]
    first, copy = route(rules, name="n", body=b"x").outputs
    assert (first.queue.name, first.draft.name) == ("c", "n")
    assert (copy.queue.name, copy.draft.name, copy.draft.body) == ("b", None, b"x")


@pytest.mark.parametrize(
    ("action", "fields", "expected"),
    [
        ({"set": {"priority": 8, "labels.v": "yes"}}, {}, {"priority": 8, "labels": {"v": "yes"}}),
        ({"unset": ["labels.x", "key"]}, {"labels": {"x": "1"}, "ordering_key": "k"},
         {"labels": None, "ordering_key": None}),
        ({"transform": "{id: order.id}"}, {"body": b'{"order":{"id":7}}'}, {"body": b'{"id":7}'}),
        ({"escalate": {"by": 2}}, {"priority": 3}, {"priority": 5}),
        ({"escalate": {"tier": "critical"}}, {"priority": 1_500}, {"priority": 4_500}),
        ({"delay": 60}, {"run_at": 5}, {"delay": 60.0, "run_at": None}),
        ({"callback": "https://example.org/x"}, {}, {"callback": "https://example.org/x"}),
    ],
)  # fmt: skip
def test_an_action_changes_the_message(action: Any, fields: Any, expected: Any) -> None:
    (output,) = route([compile_rule(name="r", do=[action])], **fields).outputs
    assert {name: getattr(output.draft, name) for name in expected} == expected


def test_integers_of_the_body_stay_exact() -> None:
    rule = compile_rule(name="r", when="message.body.n == 9007199254740993", do=[{"route": "b"}])
    assert places(route([rule], body=b'{"n": 9007199254740993}')) == ["b"]
    assert places(route([rule], body=b'{"n": 9007199254740992}')) == ["a"]


def test_a_condition_that_iterates_too_often_is_an_error() -> None:
    when = "message.body.l.exists(x, message.body.l.exists(y, x + y < 0))"
    body = b'{"l": [%s]}' % b",".join([b"1"] * 1_000)
    (fault,) = route([compile_rule(name="r", when=when, do=[{"route": "b"}])], body=body).faults
    assert "budget" in fault.text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"when": "message.priority == 'x'"}, "when: line 1, column 18: found no matching"),
        ({"when": "message.prioity > 1"}, "column 8: undeclared reference to 'message.prioity'"),
        ({"when": "message.priority"}, "the condition is INT; it must be true or false"),
        ({"when": "message.state == 'dead'"}, "undeclared reference to 'message.state'"),
        ({"do": []}, "1 to 16 are allowed"),
        ({"do": [{"route": "a", "copy": "b"}]}, "action 1: it must have exactly one of"),
        ({"do": [{"copy": "b"}] * 16}, "do would publish 17 messages for each match"),
        ({"do": [{"route": "_dead_letter"}]}, "names that begin with '_' are reserved"),
        ({"do": [{"set": {"body": "x"}}]}, "set 'body' is not a field"),
        ({"do": [{"set": {"priority": "high"}}]}, "priority"),
        ({"do": [{"transform": "{id: }"}]}, "transform: column"),
        ({"do": [{"escalate": {}}]}, "exactly one of by, priority, tier"),
        ({"do": [{"dead": "Too bad"}]}, "is not a reason"),
        ({"do": [{"archive": False}]}, "action 1: archive must be true"),
        ({"on": "completed", "do": [{"archive": True}]}, "needs an action 'route' or 'copy'"),
        ({"whn": "true"}, "rule 'r': Object contains unknown field `whn`; expected one of on,"),
        ({"do": [{"cpy": "b"}]}, "do[0]: Object contains unknown field `cpy`; expected one of"),
        ({"do": [{"escalate": {"b": 1}}]}, "unknown field `b`; expected one of by, priority, tier"),
        ({"on": "complete"}, "on: Invalid enum value 'complete'; expected one of published,"),
    ],
)  # fmt: skip
def test_a_rule_with_a_mistake_is_refused_with_its_place(given: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=None) as error:
        compile_rule(**{"name": "r", "do": [{"route": "b"}], **given})
    assert text in str(error.value)


def test_a_circle_of_unconditional_routes_is_refused() -> None:
    rules = [
        parse_rule({"name": n, "queue": q, "do": [{"route": to}]}) for n, q, to in ("xab", "ybc")
    ]
    places = [("default", name) for name in QUEUES]
    check_cycles(rules[0], rules, places)
    closing = parse_rule({"name": "z", "queue": "c", "do": [{"route": "a"}]})
    with pytest.raises(InvalidInput, match="cycle of unconditional routes"):
        check_cycles(closing, rules, places)


def test_many_ways_to_the_same_queue_are_followed_once() -> None:
    steps = [(f"{level}{here}", f"{level + 1}{there}")
             for level in range(40) for here in "ab" for there in "ab"]  # fmt: skip
    rules = [
        parse_rule({"name": f"r{number}", "queue": start, "do": [{"route": end}]})
        for number, (start, end) in enumerate(steps)
    ]
    places = [("default", name) for name in dict.fromkeys(name for step in steps for name in step)]
    check_cycles(rules[0], rules, places)
    closing = parse_rule({"name": "z", "queue": "40a", "do": [{"route": "0a"}]})
    with pytest.raises(InvalidInput, match=r"0a -> 1. -> .* -> 40a -> 0a$"):
        check_cycles(closing, rules, places)


def test_targets_must_exist_be_trusted_and_be_allowed() -> None:
    def find(place: tuple[str, str]) -> Queue | None:
        return QUEUES.get(place[1])

    there = parse_rule({"name": "r", "do": [{"route": "nowhere"}]})
    with pytest.raises(NotFound, match="no queue named 'nowhere'"):
        check_targets(there, find, [], EVERYTHING.allows)
    other = parse_rule({"name": "r", "do": [{"route": "other:b"}]})
    with pytest.raises(Forbidden, match="does not trust scope 'default'"):
        check_targets(other, find, [], EVERYTHING.allows)
    near = parse_rule({"name": "r", "do": [{"route": "b"}]})
    with pytest.raises(Forbidden, match="its author, who lacks publish on queue 'b'"):
        check_targets(near, find, [], Access([parse_grant("publish:c")]).allows)


def test_one_engine_serves_a_process() -> None:
    assert isinstance(get_engine(), CelEngine)
    assert get_engine() is get_engine()


def test_a_human_step_needs_the_right_to_open_one() -> None:
    rule = parse_rule({"name": "r", "do": [{"escalate": {"pattern": "check", "parameters": {
        "order": 1}}}]})  # fmt: skip
    found = {("default", "check"): PATTERN}
    check_patterns(rule, found.get, EVERYTHING.allows)
    with pytest.raises(Forbidden, match="its author, who lacks publish on queue '_human'"):
        check_patterns(rule, found.get, Access([parse_grant("publish:mail")]).allows)


CONDITIONS = (
    "message.priority > 5",
    "message.labels.tier == 'gold' // a comment",
    "message.labels.tier != 'gold' || message.priority == 0",
    "message.headers.a == 'x' && message.key == 'k'",
    "message.body.amount > 100.0",
    "message.body.amount == 'much'",
    "has(message.body.amount) && message.size < 20",
    "message.correlation_id.matches('^c+$')",
    "[1, 2].exists(n, n == message.priority)",
    "int(message.name) == 7",
    "message .type == 'message.labels'",
)  # fmt: skip
MESSAGES: tuple[dict[str, Any], ...] = (
    {},
    {"priority": 9},
    {"priority": 3},
    {"labels": {"tier": "gold"}},
    {"labels": {"tier": "silver"}, "headers": {"a": "x"}, "ordering_key": "k"},
    {"body": b'{"amount": 200.0}', "content_type": "application/json"},
    {"body": b'{"amount": "much"}', "content_type": "application/json"},
    {"body": b"[]", "content_type": "application/json", "name": "7"},
    {"correlation_id": "ccc", "type": "message.labels"},
)


def number_rules(conditions: Iterable[str], **more: Any) -> list[CompiledRule]:
    return [
        compile_rule(name=f"r{at:02}", queue="a", order=at, when=when, do=[{"copy": "d"}], **more)
        for at, when in enumerate(conditions)
    ]


@pytest.mark.parametrize("proceed", [True, False])
@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_conditions_that_are_tried_together_match_as_each_does_alone(
    message: dict[str, Any], proceed: bool
) -> None:
    rules = number_rules(CONDITIONS, **{"continue": proceed})
    together = route(rules, **message)
    alone = [route([rule], **message) for rule in rules]
    fired = [rule.name for each in alone for rule in each.fired]
    assert [rule.name for rule in together.fired] == (fired if proceed else fired[:1])
    if proceed or not fired:
        assert together.missing == [name for each in alone for name in each.missing]
        assert together.faults == [fault for each in alone for fault in each.faults]


def test_many_conditions_are_one_evaluation_per_group() -> None:
    rules = number_rules(f"message.priority > {100 + at}" for at in range(40))
    groups = RuleBook(rules).find(Trigger.PUBLISHED, "a", "").groups
    assert [len(each.rules) for each in groups] == [16, 16, 8]
    assert all(each.any is not None for each in groups)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("message.priority > 1 && message . labels.body == 'x'", {"priority", "labels"}),
        ("true", set()),
        ("message.// the next line\nlabels.a == 'b'", ALL_FIELDS),
        ("message.labels.a == 'message'", ALL_FIELDS),
    ],
)
def test_only_the_fields_that_a_condition_names_are_read(text: str, fields: set[str]) -> None:
    assert find_read_fields(text) == fields
