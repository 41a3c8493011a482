"""Human steps: specs, patterns, who may decide, approvals, timeouts."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import Conflict, Forbidden, InvalidInput
from penstock.model.human import (
    Assignment,
    Decision,
    DecisionOption,
    HumanPattern,
    HumanSpec,
    InboxState,
    InputField,
    TimeoutPolicy,
)
from penstock.rules import human
from penstock.rules.human import Due, OpenStep, Person
from penstock.rules.human_patterns import check_pattern, expand, list_parameters
from penstock.rules.human_spec import check_inputs, compute_digest, parse_spec

SECOND = 1_000_000
OPTIONS = (
    DecisionOption(id="yes", kind="approve"),
    DecisionOption(id="no", kind="reject", requires=("why",)),
)
SPEC = HumanSpec(
    title="Refund?",
    options=OPTIONS,
    input={"why": InputField(), "amount": InputField(type="number", minimum=0, maximum=100)},
    assign=Assignment(users=("ann",), roles=("finance",)),
)
ANN = Person("ann")
BOB = Person("bob", frozenset({"finance"}))
EVE = Person("eve")


def make_step(**changes: Any) -> OpenStep:
    spec = replace(SPEC, **{k: v for k, v in changes.items() if k in HumanSpec.__struct_fields__})
    rest = {k: v for k, v in changes.items() if k not in HumanSpec.__struct_fields__}
    return OpenStep(id=7, spec=spec, created_at=1_000 * SECOND, **rest)


def decide(step: OpenStep, who: Person, choice: str, **inputs: Any) -> InboxState | Decision:
    return human.decide(step, who, choice, inputs, "", 1_001 * SECOND)


def test_the_words_of_scaiqueue_make_a_spec() -> None:
    spec = parse_spec({
        "context": {"title": "Publish the draft?", "summary": "Text"},
        "input": [{"name": "note", "type": "string", "format": "textarea"}],
        "decision": {"options": ["publish", {"id": "drop", "requires": ["note"]}]},
        "timeout_s": 60,
        "on_timeout": {"escalate": "lead"},
    })  # fmt: skip
    assert spec == HumanSpec(
        title="Publish the draft?",
        content="Text",
        input={"note": InputField(format="long")},
        options=(DecisionOption(id="publish"), DecisionOption(id="drop", requires=("note",))),
        timeout=60,
        on_timeout=TimeoutPolicy(escalate=("lead",)),
    )


def test_a_spec_without_options_can_be_approved_or_rejected() -> None:
    spec = parse_spec({"title": "Ship it?"})
    assert [(option.id, option.kind) for option in spec.options] == [
        ("approve", "approve"),
        ("reject", "reject"),
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"title": "x", "colour": "red"}, "unknown field 'colour'"),
        ({"title": ""}, "title"),
        ({"title": "x", "content": "y" * 70_000}, "content"),
        ({"title": "x", "decision": ["a", "a"]}, "option 'a' is defined twice"),
        ({"title": "x", "decision": [{"id": "a", "requires": ["b"]}]}, "requires the input 'b'"),
        ({"title": "x", "input": {"a": {"type": "object"}}}, "Invalid enum value 'object'"),
        ({"title": "x", "input": {"a": {"properties": {}}}}, "forms are flat"),
        ({"title": "x", "on_timeout": {"decide": "maybe"}}, "'maybe' is not an option"),
        ({"title": "x", "on_timeout": "shrug"}, "on_timeout is 'shrug'"),
        ({"title": "x", "on_timeout": {"escalate": "lead"}}, "escalate needs a timeout"),
        ({"title": "x", "approvals": 0}, "approvals"),
        ({"title": "x", "timeout": -1}, "timeout"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_reason(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_spec(given)


@pytest.mark.parametrize(
    ("choice", "inputs", "problem"),
    [
        ("maybe", {}, "'maybe' is not an option of this step; choose one of yes, no"),
        ("yes", {"colour": "red"}, "unknown input 'colour'; this step takes why, amount"),
        ("no", {}, "option 'no' needs the input 'why'"),
        ("yes", {"amount": "ten"}, "input 'amount' is 'ten'; it must be a number"),
        ("yes", {"amount": 101}, "input 'amount' is 101; it must be from 0 to 100"),
        ("yes", {"amount": True}, "it must be a number"),
    ],
)
def test_wrong_inputs_are_refused(choice: str, inputs: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_inputs(SPEC, choice, inputs)


def test_a_required_property_is_needed_by_every_option() -> None:
    form = {"properties": {"note": {"type": "string"}}, "required": ["note"]}
    spec = parse_spec({"title": "x", "input": form})
    with pytest.raises(InvalidInput, match="option 'approve' needs the input 'note'"):
        check_inputs(spec, "approve", {})


PATTERN = HumanPattern(
    name="refund",
    version=3,
    spec={
        "title": "Refund {{amount}}?",
        "content": "For **{{ customer }}**",
        "input": {"note": {"default": "{{customer}}"}},
    },
)


def test_a_pattern_inserts_its_parameters_once_and_as_text() -> None:
    spec = expand(PATTERN, {"amount": 9, "customer": "{{amount}} <b>[x](y)</b>\n# big"})
    assert spec.title == "Refund 9?"
    assert spec.content == ("For **\\{\\{amount\\}\\} \\<b\\>\\[x\\]\\(y\\)\\</b\\> \\# big**")
    assert spec.input["note"].default == "{{amount}} <b>[x](y)</b>\n# big"
    assert spec.pattern == "refund@3"


@pytest.mark.parametrize(
    ("value", "default"),
    [("612.40", 612.4), (7, 7), ("-3", -3), (0.5, 0.5)],
)
def test_a_pattern_inserts_a_number_into_a_field_of_numbers(value: Any, default: float) -> None:
    form = {"amount": {"type": "number", "default": "{{amount}}"}}
    pattern = HumanPattern(name="refund", spec={"title": "Refund?", "input": form})
    check_pattern(pattern)
    assert expand(pattern, {"amount": value}).input["amount"].default == default
    with pytest.raises(InvalidInput, match="amount"):
        expand(pattern, {"amount": "much"})


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"amount": 1}, "needs the parameter 'customer'"),
        ({"amount": 1, "customer": "a", "x": 1}, "has no parameter 'x'; it has amount, customer"),
        ({"amount": {"a": 1}, "customer": "a"}, "must be text or a number"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        expand(PATTERN, parameters)


def test_a_pattern_is_checked_when_it_is_saved() -> None:
    check_pattern(PATTERN)
    assert list_parameters(PATTERN) == ["amount", "customer"]
    with pytest.raises(InvalidInput, match="unknown field 'colour'"):
        check_pattern(replace(PATTERN, spec={"title": "x", "colour": "red"}))


def test_a_person_or_a_role_that_is_assigned_decides() -> None:
    for who in (ANN, BOB, replace(EVE, acts_for_all=True)):
        decision = decide(make_step(), who, "yes", amount=3)
        assert decision == Decision(
            choice="yes",
            inputs={"amount": 3},
            by=who.subject,
            at=1_001 * SECOND,
            digest=compute_digest(SPEC),
        )
    with pytest.raises(Forbidden, match="not assigned to 'eve'"):
        decide(make_step(), EVE, "yes")


def test_the_requester_does_not_decide_unless_allowed() -> None:
    with pytest.raises(Forbidden, match="'ann' requested human step 7"):
        decide(make_step(requester="ann"), ANN, "yes")
    assert isinstance(decide(make_step(requester="ann", self_approval=True), ANN, "yes"), Decision)


def test_a_requester_does_not_decide_through_a_delegate() -> None:
    state = InboxState(delegates={"eve": "ann"})
    with pytest.raises(Forbidden):
        decide(make_step(requester="ann", state=state), EVE, "yes")


def test_several_people_must_agree() -> None:
    step = make_step(approvals=2)
    after = decide(step, ANN, "yes")
    assert isinstance(after, InboxState)
    again = replace(step, state=after)
    with pytest.raises(Conflict, match="'ann' has already chosen 'yes'"):
        decide(again, ANN, "yes")
    decision = decide(again, BOB, "yes")
    assert isinstance(decision, Decision)
    assert [each.by for each in decision.approvals] == ["ann", "bob"]


def test_a_delegate_counts_as_the_person_who_delegated() -> None:
    step = make_step(approvals=2)
    step = replace(step, state=human.delegate(step, ANN, "eve"))
    after = decide(step, EVE, "yes")
    assert isinstance(after, InboxState)
    with pytest.raises(Conflict, match="'ann' has already chosen"):
        decide(replace(step, state=after), ANN, "yes")


def test_the_first_reject_ends_a_step_of_several_people() -> None:
    decision = decide(make_step(approvals=3), BOB, "no", why="fraud")
    assert isinstance(decision, Decision)
    assert decision.choice == "no"


def test_a_claim_is_a_hint_that_ends() -> None:
    step = make_step()
    held = replace(step, state=human.claim(step, ANN, 0))
    with pytest.raises(Conflict, match="claimed by 'ann'"):
        human.claim(held, BOB, 1)
    assert human.claim(held, BOB, human.CLAIM_S * SECOND).claimed_by == "bob"
    assert human.release(held, ANN) == InboxState()
    with pytest.raises(Conflict, match="not claimed by 'bob'"):
        human.release(held, BOB)
    assert isinstance(decide(held, BOB, "yes"), Decision)


def test_a_step_reminds_then_escalates_then_expires() -> None:
    policy = TimeoutPolicy(escalate=("lead",))
    step = make_step(timeout=100.0, reminders=(10.0, 20.0), on_timeout=policy)
    start = step.created_at
    assert human.find_due(step, start) is None
    assert human.find_next_look(step) == start + 10 * SECOND
    assert human.find_due(step, start + 25 * SECOND) == Due("remind")
    step = replace(step, state=human.remind(step, start + 25 * SECOND))
    assert human.find_next_look(step) == step.times_out_at == start + 100 * SECOND
    assert human.find_due(step, start + 100 * SECOND) == Due("escalate", "lead")
    step = replace(step, state=human.escalate(step, "lead", start + 101 * SECOND))
    assert human.find_next_look(step) == start + 111 * SECOND
    assert isinstance(decide(step, Person("lea", frozenset({"lead"})), "yes"), Decision)
    assert human.find_due(step, start + 201 * SECOND) == Due("expire")


def test_a_timeout_may_decide() -> None:
    step = make_step(timeout=5.0, on_timeout=TimeoutPolicy(decide="yes"))
    late = step.created_at + 5 * SECOND
    assert human.find_due(step, late) == Due("decide")
    decision = human.decide_by_timeout(step, late)
    assert (decision.choice, decision.by, decision.timed_out) == ("yes", "_timeout", True)


@pytest.mark.parametrize("code", ["{{7*7}}", "{{a.b}}", "{{ a | safe }}", "{{#each x}}", "{{"])
def test_a_pattern_with_code_instead_of_parameters_is_refused(code: str) -> None:
    pattern = HumanPattern(name="p", spec={"title": "Ship {{order}}?", "content": code})
    with pytest.raises(InvalidInput, match="is not a parameter"):
        check_pattern(pattern)
