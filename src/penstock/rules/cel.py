"""Evaluates conditions written in CEL (extra `rules`)."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from penstock.errors import CannotGovern, InvalidInput
from penstock.extras import MissingExtra, require_extra
from penstock.model.routing import MAX_CONDITION_LENGTH, Trigger
from penstock.rules.rule_values import ALL_FIELDS

POSITION = re.compile(r"<input>:(\d+):(\d+): (.*)")
# Error texts of the engine about a field that the message does not have.
MISSING = ("NOT_FOUND", "No value with name")
WORD, FIELD = re.compile(r"\bmessage\b"), re.compile(r"\bmessage\s*\.\s*(\w+)")
# The expressions that stand for several conditions of neighbors.
MAX_COMBINED = 1_000


class FieldMissing(Exception):
    """A condition reads a field that the message does not have."""


class EvaluationError(Exception):
    """A condition or an action cannot be applied to the message. The text says why."""


class Condition(Protocol):
    # The fields of a message that it may read.
    reads: frozenset[str]

    def test(self, facts: Any) -> bool:
        """Raises FieldMissing or EvaluationError."""


class RuleEngine(Protocol):
    def compile(self, text: str, trigger: Trigger) -> Condition:
        """Raises InvalidInput with the position of the mistake."""

    def compile_any(self, texts: tuple[str, ...], trigger: Trigger) -> Condition:
        """Makes one condition that is true if one of them is, and false if all of them are."""

    def bind(self, values: Mapping[str, Any], trigger: Trigger) -> Any: ...


class CelCondition:
    """A compiled expression. The engine bounds its iterations; patterns take linear time."""

    def __init__(self, expression: Any, reads: frozenset[str]) -> None:
        self.expression = expression
        self.reads = reads

    def test(self, facts: Any) -> bool:
        try:
            found = self.expression.eval(facts)
            answer = found.value()
        except (RuntimeError, ValueError, OverflowError) as error:
            raise EvaluationError(clean(str(error))) from None
        if answer is True or answer is False:
            return bool(answer)
        if any(word in str(answer) for word in MISSING):
            raise FieldMissing(str(answer))
        raise EvaluationError(clean(str(answer)))


class CelEngine:
    def __init__(self) -> None:
        try:
            with require_extra("rules"):
                from cel_expr_python import cel
        except MissingExtra as error:
            raise CannotGovern(f"this process cannot evaluate routing rules: {error}") from None
        self.types = cel.Type
        published = make_variables(cel.Type)
        self.published = cel.NewEnv(variables=published)
        self.ended = cel.NewEnv(variables=published | make_end_variables(cel.Type))
        self.combined: dict[tuple[Any, tuple[str, ...]], CelCondition] = {}

    def compile(self, text: str, trigger: Trigger) -> CelCondition:
        if len(text) > MAX_CONDITION_LENGTH:
            raise InvalidInput(
                f"when has {len(text)} characters; at most {MAX_CONDITION_LENGTH} are allowed"
            )
        try:
            expression = self.environment(trigger).compile(text)
        except RuntimeError as error:
            raise InvalidInput(f"when: {describe_mistake(str(error))}") from None
        kind = expression.return_type()
        if kind not in (self.types.BOOL, self.types.DYN):
            raise InvalidInput(f"when: the condition is {kind.name()}; it must be true or false")
        return CelCondition(expression, find_read_fields(text))

    def compile_any(self, texts: tuple[str, ...], trigger: Trigger) -> CelCondition:
        environment = self.environment(trigger)
        found = self.combined.get((environment, texts))
        if found is None:
            # The last line of a condition may end in a comment.
            whole = " || ".join(f"({text}\n)" for text in texts)
            try:
                expression = environment.compile(whole)
            except RuntimeError as error:
                raise InvalidInput(f"when: {describe_mistake(str(error))}") from None
            found = CelCondition(expression, find_read_fields(whole))
            if len(self.combined) >= MAX_COMBINED:
                self.combined.clear()
            self.combined[environment, texts] = found
        return found

    def bind(self, values: Mapping[str, Any], trigger: Trigger) -> Any:
        return self.environment(trigger).Activation(values)

    def environment(self, trigger: Trigger) -> Any:
        return self.published if trigger is Trigger.PUBLISHED else self.ended


@cache
def get_engine() -> CelEngine:
    """Returns the engine of this process. Raises CannotGovern without the extra `rules`."""
    return CelEngine()


def make_variables(types: Any) -> dict[str, Any]:
    texts = types.Map(types.STRING, types.STRING)
    return {
        "message.queue": types.STRING,
        "message.scope": types.STRING,
        "message.type": types.STRING,
        "message.priority": types.INT,
        "message.size": types.INT,
        "message.name": types.STRING,
        "message.key": types.STRING,
        "message.correlation_id": types.STRING,
        "message.content_type": types.STRING,
        "message.labels": texts,
        "message.headers": texts,
        "message.body": types.DYN,
    }


def make_end_variables(types: Any) -> dict[str, Any]:
    """Returns the variables that only rules on an end know."""
    return {
        "message.id": types.INT,
        "message.state": types.STRING,
        "message.reason": types.STRING,
        "message.error": types.STRING,
        "message.attempts": types.INT,
        "message.deliveries": types.INT,
    }


def find_read_fields(text: str) -> frozenset[str]:
    """Returns the fields that a condition may read: all of them, if the text does not show them."""
    found = FIELD.findall(text)
    return ALL_FIELDS if len(found) != len(WORD.findall(text)) else ALL_FIELDS.intersection(found)


def describe_mistake(text: str) -> str:
    """Turns the engine's message into "line 1, column 18: ..."."""
    found = POSITION.search(text)
    if found is None:
        return clean(text)
    line, column, what = found.groups()
    return f"line {line}, column {column}: {what.removesuffix(' (in container ' + repr('') + ')')}"


def clean(text: str) -> str:
    return text.partition("\n")[0][:300]
