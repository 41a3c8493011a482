"""Decides whether a message fits a filter, and what a store may skip."""

from collections.abc import Callable, Collection, Iterator
from typing import Any as AnyValue
from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.model.filter import All, Any, Candidate, Node, Not, Op, Pattern, Span, Term, Value
from penstock.model.message import MICROS_PER_SECOND, NEVER, HistoryRow, Moment, Record, State
from penstock.model.queue import Queue
from penstock.rules.filter_parser import MAPS
from penstock.rules.fingerprints import make_fingerprint
from penstock.rules.globs import match_parts

MAX_KIND = 80
FAILED_STATES = frozenset({State.DEAD, State.FAILED})
Verdict: TypeAlias = bool | None


class Bounds(Struct, frozen=True):
    """Conditions that every matching message meets. A store may use them to read fewer rows."""

    created_since: Moment = 0
    created_until: Moment = NEVER
    ids: tuple[int, ...] | None = None
    correlation: str | None = None


def matches(node: Node, candidate: Candidate) -> bool:
    return evaluate(node, lambda term: match_term(term, candidate)) is True


def may_match(node: Node, known: Candidate, fields: Collection[str]) -> bool:
    """False if no message with these known fields can match, whatever its other fields are."""
    return judge(node, known, fields) is not False


def judge(node: Node, known: Candidate, fields: Collection[str]) -> Verdict:
    """Decides by the known fields of a message. None means that the others decide."""
    return evaluate(node, lambda term: match_term(term, known) if term.field in fields else None)


def evaluate(node: Node, decide: Callable[[Term], Verdict]) -> Verdict:
    """Evaluates in three-valued logic. None means unknown."""
    match node:
        case Term():
            return decide(node)
        case Not(inner):
            verdict = evaluate(inner, decide)
            return None if verdict is None else not verdict
        case All(nodes):
            return join((evaluate(each, decide) for each in nodes), ends=False)
        case Any(nodes):
            return join((evaluate(each, decide) for each in nodes), ends=True)


def join(verdicts: Iterator[Verdict], *, ends: bool) -> Verdict:
    """Joins by AND, which False ends, or by OR, which True ends."""
    unknown = False
    for verdict in verdicts:
        if verdict is ends:
            return ends
        unknown = unknown or verdict is None
    return None if unknown else not ends


def match_term(term: Term, candidate: Candidate) -> bool:
    match term.field:
        case "label" | "header":
            value = (getattr(candidate, MAPS[term.field]) or {}).get(".".join(term.path))
        case "body":
            return any(match_value(term, value) for value in find_in_body(candidate, term.path))
        case "rule":
            names = {text for rule in candidate.rules for text in (rule, rule.rpartition("@")[0])}
            return any(match_value(term, name) for name in names)
        case "error.kind":
            value = find_error_kind(candidate.error)
        case "error":
            return match_error(term, candidate.error)
        case "fingerprint":
            value = find_fingerprint(candidate)
        case field:
            value = getattr(candidate, field)
    return value is not None and match_value(term, value)


def match_value(term: Term, value: AnyValue) -> bool:
    return any(compare(term.op, value, wanted) for wanted in term.values)


def compare(op: Op, value: AnyValue, wanted: Value) -> bool:
    match wanted:
        case Pattern():
            return match_pattern(wanted, value)
        case Span(since, until):
            return compare_span(op, value, since, until)
        case number:
            return compare_number(op, value, number)


def match_pattern(pattern: Pattern, value: AnyValue) -> bool:
    match value:
        case str():
            return match_parts(pattern.parts, value)
        case bool() | None:
            return match_parts(pattern.parts, {True: "true", False: "false", None: "null"}[value])
        case int() | float():
            return is_number(pattern, value) or match_parts(pattern.parts, str(value))
    # Objects and lists have no text; `body.items:*` asks whether they exist.
    return pattern.parts == ("", "")


def is_number(pattern: Pattern, value: float) -> bool:
    """True if the pattern is another spelling of the number, such as 5 and 5.0."""
    try:
        return pattern.literal is not None and float(pattern.literal) == value
    except ValueError:
        return False


def compare_span(op: Op, value: Moment, since: Moment, until: Moment) -> bool:
    match op:
        case Op.IS:
            return since <= value < until
        case Op.ABOVE:
            return value >= until
        case Op.AT_LEAST:
            return value >= since
        case Op.BELOW:
            return value < since
        case Op.AT_MOST:
            return value < until


def compare_number(op: Op, value: AnyValue, wanted: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    match op:
        case Op.IS:
            return value == wanted
        case Op.ABOVE:
            return value > wanted
        case Op.AT_LEAST:
            return value >= wanted
        case Op.BELOW:
            return value < wanted
        case Op.AT_MOST:
            return value <= wanted


def match_error(term: Term, error: str | None) -> bool:
    """Looks for the text anywhere in the error, in any case."""
    if error is None:
        return False
    folded = error.casefold()
    return any(
        match_parts(("", *(part.casefold() for part in value.parts), ""), folded)
        for value in term.values
        if isinstance(value, Pattern)
    )


def find_error_kind(error: str | None) -> str | None:
    """Returns the text before the first colon of the first line, such as ValueError."""
    if error is None:
        return None
    return error.partition("\n")[0].partition(":")[0][:MAX_KIND]


def find_fingerprint(candidate: Candidate) -> str | None:
    """Returns the fingerprint of the last error. Failures without an error have one in common."""
    if candidate.error is None and candidate.state not in FAILED_STATES:
        return None
    return make_fingerprint(candidate.error or "")


def find_failed_at(record: Record) -> Moment | None:
    """Returns when a dead or failed message failed for the last time."""
    if record.state not in FAILED_STATES:
        return None
    return record.timeline[-1].at if record.timeline else record.message.created_at


def find_in_body(candidate: Candidate, path: tuple[str, ...]) -> list[AnyValue]:
    """Returns the values at the path. Lists are searched element by element."""
    try:
        found = [msgspec.json.decode(candidate.body or b"")]
    except (msgspec.DecodeError, RecursionError):
        return []
    for name in path:
        found = [inner for value in found for inner in step_into(value, name)]
    return [leaf for value in found for leaf in (value if isinstance(value, list) else [value])]


def step_into(value: AnyValue, name: str) -> Iterator[AnyValue]:
    if isinstance(value, dict) and name in value:
        yield value[name]
    elif isinstance(value, list):
        if name.isdecimal():
            yield from value[int(name) : int(name) + 1]
        else:
            yield from (item[name] for item in value if isinstance(item, dict) and name in item)


def find_bounds(node: Node) -> Bounds:
    """Derives bounds from the terms that every match must satisfy."""
    bounds = Bounds()
    for term in node.nodes if isinstance(node, All) else (node,):
        if isinstance(term, Term):
            bounds = narrow(bounds, term)
    return bounds


def narrow(bounds: Bounds, term: Term) -> Bounds:
    values = term.values
    match term.field, term.op, values[0]:
        case "created", op, Span(since, until) if len(values) == 1:
            return narrow_created(bounds, op, since, until)
        case "id", Op.IS, _:
            ids = {int(value) for value in values if isinstance(value, int | float)}
            kept = ids if bounds.ids is None else ids & set(bounds.ids)
            return msgspec.structs.replace(bounds, ids=tuple(sorted(kept)))
        case "correlation", Op.IS, Pattern() as pattern if len(values) == 1:
            return msgspec.structs.replace(bounds, correlation=pattern.literal)
    return bounds


def narrow_created(bounds: Bounds, op: Op, since: Moment, until: Moment) -> Bounds:
    lower = {Op.IS: since, Op.AT_LEAST: since, Op.ABOVE: until}.get(op, 0)
    upper = {Op.IS: until, Op.AT_MOST: until, Op.BELOW: since}.get(op, NEVER)
    return msgspec.structs.replace(
        bounds,
        created_since=max(bounds.created_since, lower),
        created_until=min(bounds.created_until, upper),
    )


def list_fields(node: Node) -> Iterator[Term]:
    """Yields every term, so that a caller's rights to its field can be checked."""
    match node:
        case Term():
            yield node
        case Not(inner):
            yield from list_fields(inner)
        case All(nodes) | Any(nodes):
            for each in nodes:
                yield from list_fields(each)


def make_candidate(record: Record, queue: Queue) -> Candidate:
    message, meta = record.message, record.message.meta
    last = record.timeline[-1] if record.timeline else None
    return Candidate(
        state=record.state,
        queue=queue.name,
        scope=queue.scope.name,
        type=message.type,
        id=message.id,
        name=meta.name,
        key=meta.ordering_key,
        correlation=meta.correlation_id,
        causation=meta.causation_id,
        parent=meta.parent_id,
        consumer=record.consumer or (last.consumer if last else None),
        reason=record.reason,
        error=record.error,
        priority=message.priority,
        attempts=record.attempts,
        deliveries=record.deliveries,
        created=message.created_at,
        ended=last.at if last and last.final else None,
        failed=find_failed_at(record),
        due=record.due_at,
        expires=record.expires_at,
        wait=measure_wait(record),
        rules=meta.path,
        labels=meta.labels,
        headers=meta.headers,
        body=message.body,
        size=len(message.body),
    )


def measure_wait(record: Record) -> float | None:
    """Returns the seconds that the message was ready before it was last claimed."""
    claimed_at, rests = record.claimed_at, list(record.timeline)
    while claimed_at is None and rests:
        claimed_at = rests.pop().claimed_at
    if claimed_at is None:
        return None
    return max(0.0, (claimed_at - find_ready_at(record, rests)) / MICROS_PER_SECOND)


def find_ready_at(record: Record, earlier: list[HistoryRow]) -> Moment:
    """Returns since when the message could be claimed. A requested delay is not wait time."""
    if earlier:
        return earlier[-1].due_at or earlier[-1].at
    return max(record.message.created_at, record.run_at or 0)
