"""Parses filters such as `state:dead queue:mail* -type:heartbeat age>10m body.country:BR`.

Terms are joined by AND, `-` negates, and `(a OR b)` groups. A list `a,b` matches one of its values.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from penstock.errors import FilterTooLarge, InvalidInput
from penstock.model.filter import All, Any, Node, Not, Op, Pattern, Span, Term, Value
from penstock.model.message import FINAL, MICROS_PER_SECOND, Moment, State
from penstock.rules.durations import parse_seconds

MAX_CHARACTERS = 2_000
MAX_TERMS = 50
MAX_DEPTH = 8
MAX_VALUES = 100
MAX_STARS = 8
DAY_S = 86_400

TEXTS = (
    "queue", "scope", "type", "name", "key", "correlation", "causation", "consumer", "reason",
    "rule", "fingerprint",
)  # fmt: skip
NUMBERS = ("id", "parent", "priority", "attempts", "deliveries", "size")
TIMES = ("created", "ended", "failed", "due", "expires")
DURATIONS = ("age", "wait")
# These take a key or a path: label.tier, header.tenant, body.customer.country.
MAPS = {"label": "labels", "header": "headers", "body": "body"}
FIELDS = (
    "state", *TEXTS, "worker", "error", "error.kind", *NUMBERS, *TIMES, *DURATIONS,
    *(f"{name}." for name in MAPS),
)  # fmt: skip
# A worker is the consumer of the messages it claims.
ALIASES = {"worker": "consumer"}
STATES = {
    **{state.value: (state,) for state in State},
    "unfinished": tuple(state for state in State if state not in FINAL),
    "ended": tuple(state for state in State if state in FINAL),
}
INVERTED = {
    Op.ABOVE: Op.BELOW,
    Op.AT_LEAST: Op.AT_MOST,
    Op.BELOW: Op.ABOVE,
    Op.AT_MOST: Op.AT_LEAST,
}
OPERATOR = re.compile(r":|>=|<=|>|<")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
FIELD_TEXT = re.compile(r"[^\s:<>()\",.]+")
BARE_VALUE = re.compile(r"[^\s,()\"]+")
SPACE = re.compile(r"\s*")
OR = re.compile(r"OR(?=[\s(])")
WHEN = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def parse_filter(text: str, now: Moment) -> Node:
    """Parses a filter. Relative times such as `-2h`, `today` and ages count from `now`."""
    if len(text) > MAX_CHARACTERS:
        raise FilterTooLarge(f"the filter is longer than {MAX_CHARACTERS:,} characters")
    return FilterParser(text, now).parse()


class FilterParser:
    """A recursive descent parser that knows where it is, for its error messages."""

    def __init__(self, text: str, now: Moment) -> None:
        self.text = text
        self.now = now
        self.at = 0
        self.terms = 0

    def parse(self) -> Node:
        node = self.parse_clauses(0)
        if self.at < len(self.text):
            raise self.complain("unmatched ')'")
        return node

    def parse_clauses(self, depth: int) -> Node:
        nodes = []
        while self.skip_space() and self.text[self.at] != ")" and not self.peek(OR):
            nodes.append(self.parse_clause(depth))
        if depth == 0 and self.peek(OR):
            raise self.complain("OR needs parentheses: (a OR b)")
        return nodes[0] if len(nodes) == 1 else All(tuple(nodes))

    def parse_clause(self, depth: int) -> Node:
        negated = False
        while self.take("-"):
            negated = not negated
        node = self.parse_group(depth + 1) if self.take("(") else self.parse_term()
        return Not(node) if negated else node

    def parse_group(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise FilterTooLarge(f"the filter is nested deeper than {MAX_DEPTH}")
        start = self.at
        options = [self.parse_option(depth)]
        while self.peek(OR):
            self.at += len("OR")
            options.append(self.parse_option(depth))
        if not self.take(")"):
            self.at = start - 1
            raise self.complain("'(' is never closed")
        return options[0] if len(options) == 1 else Any(tuple(options))

    def parse_option(self, depth: int) -> Node:
        start = self.at
        node = self.parse_clauses(depth)
        if node == All(()):
            self.at = start
            raise self.complain("expected a term such as state:dead")
        return node

    def parse_term(self) -> Node:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise FilterTooLarge(f"the filter has more than {MAX_TERMS} terms")
        start = self.at
        field, path = self.parse_field()
        found = OPERATOR.match(self.text, self.at)
        if found is None:
            self.at = start
            raise self.complain(f"expected FIELD:VALUE, not {self.text[start : start + 40]!r}")
        self.at = found.end()
        op = Op(found[0])
        value_at = self.at
        values = self.parse_values()
        if op is not Op.IS and len(values) > 1:
            self.at = value_at
            raise self.complain(f"{op} takes one value, not a list")
        return self.make_term(field, path, op, values, value_at)

    def parse_field(self) -> tuple[str, tuple[str, ...]]:
        start = self.at
        segments = [self.parse_segment()]
        while self.at < len(self.text) and self.text[self.at] == ".":
            self.at += 1
            segments.append(self.parse_segment())
        field, path = segments[0], tuple(segments[1:])
        if field == "error" and path == ("kind",):
            return "error.kind", ()
        if (field in MAPS and path) or (field in FIELDS and not path):
            return field, path
        self.at = start
        raise self.complain(describe_unknown(field, path))

    def parse_segment(self) -> str:
        if (quoted := QUOTED.match(self.text, self.at)) is not None:
            self.at = quoted.end()
            return unescape(quoted[1])
        found = FIELD_TEXT.match(self.text, self.at)
        if found is None:
            raise self.complain("expected a field name")
        self.at = found.end()
        return found[0]

    def parse_values(self) -> list[Pattern]:
        values = [self.parse_value()]
        while self.at < len(self.text) and self.text[self.at] == ",":
            self.at += 1
            values.append(self.parse_value())
            if len(values) > MAX_VALUES:
                raise FilterTooLarge(f"a list has more than {MAX_VALUES} values")
        return values

    def parse_value(self) -> Pattern:
        if (quoted := QUOTED.match(self.text, self.at)) is not None:
            self.at = quoted.end()
            return Pattern((unescape(quoted[1]),))
        found = BARE_VALUE.match(self.text, self.at)
        if found is None:
            raise self.complain("expected a value")
        self.at = found.end()
        parts = tuple(found[0].split("*"))
        if len(parts) - 1 > MAX_STARS:
            raise FilterTooLarge(f"a value has more than {MAX_STARS} stars")
        return Pattern(parts)

    def make_term(
        self, field: str, path: tuple[str, ...], op: Op, values: list[Pattern], value_at: int
    ) -> Node:
        try:
            return make_term(ALIASES.get(field, field), path, op, values, self.now)
        except InvalidInput as error:
            self.at = value_at
            raise self.complain(str(error)) from None

    def skip_space(self) -> bool:
        """Skips white space. Returns whether there is text left."""
        found = SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at < len(self.text)

    def peek(self, pattern: re.Pattern[str]) -> bool:
        self.skip_space()
        return pattern.match(self.text, self.at) is not None

    def take(self, character: str) -> bool:
        self.skip_space()
        taken = self.text.startswith(character, self.at)
        self.at += taken
        return taken

    def complain(self, problem: str) -> InvalidInput:
        """Returns an error that names the position, counted from 1."""
        head, mark, tail = problem.partition("; ")
        return InvalidInput(f"filter: {head} at {self.at + 1}{mark}{tail}")


def make_term(
    field: str, path: tuple[str, ...], op: Op, values: list[Pattern], now: Moment
) -> Node:
    if field == "state":
        return Term(field, require_is(field, op), tuple(expand_states(values)))
    if field == "age":
        return make_age_term(op, values[0], now)
    if field == "wait":
        return Term(field, op, (parse_duration(field, op, values[0]),))
    if field in TIMES:
        return Term(field, op, tuple(parse_time(value, now) for value in values))
    if field in NUMBERS or (path and op is not Op.IS):
        return Term(field, op, tuple(parse_number(field, value) for value in values), path)
    return Term(field, require_is(field, op), tuple(values), path)


def make_age_term(op: Op, value: Pattern, now: Moment) -> Term:
    since = now - round(parse_duration("age", op, value) * MICROS_PER_SECOND)
    return Term("created", INVERTED[op], (Span(since, since + 1),))


def require_is(field: str, op: Op) -> Op:
    if op is not Op.IS:
        raise InvalidInput(f"{field} is compared with ':', not {op.value!r}")
    return op


def expand_states(values: list[Pattern]) -> list[Value]:
    found: list[Value] = []
    for value in values:
        word = "*".join(value.parts)
        if word not in STATES:
            raise InvalidInput(f"{word!r} is not a state; {suggest(word, STATES)}")
        found += [Pattern((state.value,)) for state in STATES[word]]
    return found


def parse_duration(field: str, op: Op, value: Pattern) -> float:
    if op is Op.IS:
        raise InvalidInput(f"{field} is compared with > or <; write {field}>10m")
    return parse_seconds("*".join(value.parts))


def parse_number(field: str, value: Pattern) -> float:
    text = "*".join(value.parts)
    try:
        # Ids beyond 2**53 stay exact as integers.
        return int(text) if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) else read_float(text)
    except ValueError:
        raise InvalidInput(f"{field} is a number, not {text[:40]!r}") from None


def read_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(text)
    return number


def parse_time(value: Pattern, now: Moment) -> Span:
    """Returns the span of a day for a date, and one microsecond for a time."""
    text = "*".join(value.parts)
    if text in ("today", "yesterday"):
        return make_day(now // MICROS_PER_SECOND // DAY_S - (text == "yesterday"))
    if text == "now":
        return Span(now, now + 1)
    if text[:1] in ("-", "+"):
        moment = now + (1 if text[0] == "+" else -1) * round(
            parse_seconds(text[1:]) * MICROS_PER_SECOND
        )
        return Span(moment, moment + 1)
    if not WHEN.fullmatch(text):
        raise InvalidInput(
            f"{text[:40]!r} is not a time; write 2026-11-16, 2026-11-16T10:00Z, today or -2h"
        )
    return read_iso(text)


def parse_moment(text: str, now: Moment) -> Moment:
    """Returns the beginning of a time written as in a filter: 2026-11-16, today or -2h."""
    return parse_time(Pattern((text,)), now).since


def read_iso(text: str) -> Span:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a time: {error}") from None
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = (zoned - epoch) // timedelta(microseconds=1)
    return Span(since, since + (1 if "T" in text else DAY_S * MICROS_PER_SECOND))


def make_day(days: int) -> Span:
    return Span(days * DAY_S * MICROS_PER_SECOND, (days + 1) * DAY_S * MICROS_PER_SECOND)


def describe_unknown(field: str, path: tuple[str, ...]) -> str:
    if field in MAPS:
        return f"{field!r} needs a key; write {field}.NAME:VALUE"
    name = ".".join((field, *path))
    return f"unknown field {name[:60]!r}; {suggest(field, FIELDS)}"


def suggest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, [name.rstrip(".") for name in known], n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
