"""Applies the actions of a routing rule to a draft."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import CannotGovern, InvalidInput
from penstock.extras import MissingExtra, require_extra
from penstock.model.fields import JSON
from penstock.model.human import HumanPattern
from penstock.model.message import Draft, State
from penstock.model.queue import Queue
from penstock.model.routing import (
    MAX_CONDITION_LENGTH,
    PRIORITIES_PER_TIER,
    TIERS,
    Action,
    Escalation,
    StoredRule,
)
from penstock.rules.cel import EvaluationError
from penstock.rules.human_patterns import expand
from penstock.rules.human_steps import RULE_REQUESTER, make_step_draft
from penstock.rules.rule_values import make_nested_values

ARCHIVED_BY_RULE = "archived_by_rule"
RULE_ERROR = "rule_error"
# Maps the names that `set` and `unset` accept to fields of a draft.
SETTABLE = {
    "priority": "priority",
    "delay": "delay",
    "ttl": "ttl",
    "type": "type",
    "key": "ordering_key",
}
UNSETTABLE = ("delay", "ttl", "key", "labels", "headers")
MAPS = ("labels", "headers")
DEFAULTS = Draft()

Template: TypeAlias = Callable[[Any], Any]


class RuleTargets(Protocol):
    """Finds what the actions of a rule name. Raises EvaluationError."""

    def find_target(self, stored: StoredRule, target: str) -> Queue: ...

    def find_pattern(self, stored: StoredRule, name: str) -> HumanPattern: ...

    def find_inbox(self, stored: StoredRule) -> Queue:
        """Returns the queue of human steps."""


class RuleOutput(Struct, frozen=True):
    """A message that a rule makes of a draft. With a state, it ends at once in it.

    One that is held is a human step.
    """

    draft: Draft
    queue: Queue
    state: State | None = None
    reason: str | None = None
    held: bool = False


def compile_template(text: str, field: str = "transform") -> Template:
    """Compiles a JMESPath expression. Raises InvalidInput with the position of a mistake."""
    if len(text) > MAX_CONDITION_LENGTH:
        raise InvalidInput(
            f"{field} has {len(text)} characters; at most {MAX_CONDITION_LENGTH} are allowed"
        )
    try:
        with require_extra("rules"):
            import jmespath
            from jmespath.exceptions import JMESPathError
    except MissingExtra as error:
        raise CannotGovern(f"this process cannot evaluate routing rules: {error}") from None
    try:
        expression = jmespath.compile(text)
    except JMESPathError as error:
        column = getattr(error, "lex_position", 0) + 1
        problem = str(error).partition("\n")[0]
        raise InvalidInput(f"{field}: column {column}: {problem}") from None

    def search(body: Any) -> Any:
        try:
            return expression.search(body)
        except JMESPathError as error:
            raise EvaluationError(f"{field}: {str(error).partition(chr(10))[0]}") from None

    return search


class Actions:
    """The actions of one rule, with their templates compiled."""

    def __init__(self, stored: StoredRule) -> None:
        self.stored = stored
        self.actions = stored.rule.do
        self.templates = {
            each.transform: compile_template(each.transform)
            for each in self.actions
            if each.transform is not None
        }
        self.steps = {
            place: StepTemplate(stored, each.escalate)
            for place, each in enumerate(self.actions)
            if each.escalate is not None and each.escalate.pattern is not None
        }

    def apply(
        self, output: RuleOutput, targets: RuleTargets
    ) -> tuple[RuleOutput, list[RuleOutput]]:
        """Returns the message as the rule leaves it, and its copies. Raises EvaluationError."""
        copies: list[RuleOutput] = []
        find = targets.find_target
        for place, action in enumerate(self.actions):
            if action.copy is not None:
                copied = replace(output.draft, name=None, dedup=None, callback=None)
                copies.append(RuleOutput(copied, find(self.stored, action.copy)))
            elif place in self.steps:
                copies.append(self.steps[place].make_step(output, targets))
            elif action.route is not None:
                output = replace(output, queue=find(self.stored, action.route))
            elif action.archive:
                output = replace(output, state=State.COMPLETED, reason=ARCHIVED_BY_RULE)
            elif action.dead is not None:
                output = replace(output, state=State.DEAD, reason=action.dead)
            else:
                output = replace(output, draft=self.change(output.draft, action))
        return output, copies

    def change(self, draft: Draft, action: Action) -> Draft:
        if action.set is not None:
            return set_fields(draft, action.set)
        if action.unset is not None:
            return unset_fields(draft, action.unset)
        if action.transform is not None:
            return transform(draft, self.templates[action.transform])
        if action.escalate is not None:
            return replace(draft, priority=raise_priority(draft.priority, action.escalate))
        if action.delay is not None:
            return replace(draft, delay=action.delay, run_at=None)
        assert action.callback is not None
        return replace(draft, callback=action.callback)


class StepTemplate:
    """A human step that a rule opens, with the expressions of its parameters compiled."""

    def __init__(self, stored: StoredRule, escalation: Escalation) -> None:
        self.stored = stored
        self.pattern = escalation.pattern or ""
        self.parameters = {
            name: compile_template(value, f"parameter {name!r}")
            if isinstance(value, str)
            else value
            for name, value in escalation.parameters.items()
        }

    def make_step(self, output: RuleOutput, targets: RuleTargets) -> RuleOutput:
        """Expands the pattern with values of the message. Raises EvaluationError."""
        pattern = targets.find_pattern(self.stored, self.pattern)
        seen = make_nested_values(output.draft, output.queue)
        values = {
            name: value(seen) if callable(value) else value
            for name, value in self.parameters.items()
        }
        try:
            spec = expand(pattern, values)
        except InvalidInput as error:
            raise EvaluationError(f"escalate: {error}") from None
        draft = make_step_draft(spec, f"{RULE_REQUESTER}{self.stored.reference}", Draft(
            correlation_id=output.draft.correlation_id,
            causation_id=output.draft.causation_id,
            parent_id=output.draft.parent_id,
            path=output.draft.path,
            publisher=output.draft.publisher,
        ))  # fmt: skip
        return RuleOutput(draft, targets.find_inbox(self.stored), held=True)


def set_fields(draft: Draft, values: Mapping[str, Any]) -> Draft:
    changes: dict[str, Any] = {}
    for name, value in values.items():
        kind, _, key = name.partition(".")
        if kind in MAPS:
            before = changes.get(kind) or getattr(draft, kind) or {}
            changes[kind] = {**before, key: value}
        else:
            changes[SETTABLE[name]] = value
    if "delay" in changes:
        changes["run_at"] = None
    if "ttl" in changes:
        changes["expires_at"] = None
    return replace(draft, **changes)


def unset_fields(draft: Draft, names: tuple[str, ...]) -> Draft:
    changes: dict[str, Any] = {}
    for name in names:
        kind, _, key = name.partition(".")
        if kind in MAPS and key:
            before = changes.get(kind) or getattr(draft, kind) or {}
            changes[kind] = {each: before[each] for each in before if each != key} or None
        else:
            field = SETTABLE.get(name, name)
            changes[field] = getattr(DEFAULTS, field)
    if "delay" in changes:
        changes["run_at"] = None
    if "ttl" in changes:
        changes["expires_at"] = None
    return replace(draft, **changes)


def raise_priority(priority: int, escalation: Escalation) -> int:
    if escalation.by is not None:
        return priority + escalation.by
    if escalation.priority is not None:
        return max(priority, escalation.priority)
    assert escalation.tier is not None
    least = TIERS[escalation.tier] * PRIORITIES_PER_TIER
    return priority if priority >= least else least + priority % PRIORITIES_PER_TIER


def transform(draft: Draft, template: Template) -> Draft:
    try:
        body = msgspec.json.decode(draft.body)
    except msgspec.DecodeError:
        raise EvaluationError("transform: the body is not JSON") from None
    found = template(body)
    if found is None:
        raise EvaluationError("transform: the expression found nothing in the body")
    return replace(draft, body=msgspec.json.encode(found), content_type=JSON)
