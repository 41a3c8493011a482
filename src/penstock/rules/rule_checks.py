"""Checks a routing rule before it is saved."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.errors import Forbidden, InvalidInput, NotFound
from penstock.model.fields import FIELDS, MAX_DELAY_S, MAX_WORD_LENGTH, NAME_PATTERN
from penstock.model.human import HumanPattern
from penstock.model.queue import HUMAN, Queue
from penstock.model.routing import MAX_ACTIONS, MAX_OUTPUTS, Action, Escalation, Rule, Trigger
from penstock.model.settings import SHELL_TYPE
from penstock.rules.access import Right, Trust, is_granted
from penstock.rules.callbacks import check_url
from penstock.rules.drafts import check_field
from penstock.rules.globs import match_glob
from penstock.rules.human_patterns import list_parameters
from penstock.rules.rule_actions import MAPS, SETTABLE, UNSETTABLE
from penstock.rules.validation import check_number, check_text, clip

NAME = re.compile(NAME_PATTERN)
TARGET = re.compile(rf"(?:(?P<scope>{NAME_PATTERN}):)?(?P<queue>{NAME_PATTERN})")
REASON = re.compile(r"[a-z0-9_]{1,64}")
INDEX = re.compile(r"\[\d+\]")
FIELDS_BY_PLACE = {
    "": Rule.__struct_encode_fields__,
    "do": Action.__struct_encode_fields__,
    "do.escalate": Escalation.__struct_encode_fields__,
}
SHELL_HINT = "; over HTTP, a server must be started with --allow-shell besides"
MAX_ORDER = 1_000_000
MAX_LIMIT = 1_000_000
MAX_DESCRIPTION_LENGTH = 1_000
# True if the author has the right on a queue of a scope.
Allows = Callable[[Right, str, str], bool]
Place = tuple[str, str]


def parse_rule(given: "Rule | Mapping[str, Any]") -> Rule:
    """Makes a rule of JSON or TOML. The error names the field."""
    if isinstance(given, Rule):
        return given
    try:
        rule = msgspec.convert(dict(given), Rule)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"rule{describe_name(given)}: {explain_invalid(error)}") from None
    check_rule(rule)
    return rule


@contextmanager
def name_rule(name: object) -> Iterator[None]:
    """Says in an error which rule it is about."""
    try:
        yield
    except InvalidInput as error:
        if name is None or clip(name) in str(error):
            raise
        raise InvalidInput(f"rule {clip(name)}: {error}") from None


def describe_name(given: Mapping[str, Any]) -> str:
    return f" {clip(given['name'])}" if "name" in given else ""


def explain_invalid(error: msgspec.ValidationError) -> str:
    """Adds the words that a rule knows to an error about an unknown one."""
    text, _, place = str(error).partition(" - at ")
    place = place.strip("`").removeprefix("$.")
    known: Iterable[str] = ()
    if text.startswith("Object contains unknown field"):
        fields = FIELDS_BY_PLACE.get(INDEX.sub("", place), ())
        known = [each for each in fields if each != "scope"]
    elif place == "on":
        known = list(Trigger)
    hint = f"; expected one of {', '.join(known)}" if known else ""
    return f"{place + ': ' if place else ''}{text}{hint}"


def check_rule(rule: Rule) -> None:
    """Checks everything that needs no queues and no engine."""
    if not NAME.fullmatch(rule.name):
        raise InvalidInput(f"name {clip(rule.name)} is invalid; use letters, digits, . _ or -")
    for name, glob in (("queue", rule.queue), ("type", rule.type)):
        check_text(name, glob, MAX_WORD_LENGTH)
    check_number("order", rule.order, -MAX_ORDER, MAX_ORDER, whole=True, needed=True)
    check_number("limit", rule.limit, 1, MAX_LIMIT, whole=True, needed=True)
    check_text("description", rule.description, MAX_DESCRIPTION_LENGTH, least=0)
    if not 1 <= len(rule.do) <= MAX_ACTIONS:
        raise InvalidInput(f"do has {len(rule.do)} actions; 1 to {MAX_ACTIONS} are allowed")
    for number, action in enumerate(rule.do, 1):
        try:
            check_action(action)
        except InvalidInput as error:
            raise InvalidInput(f"action {number}: {error}") from None
    check_outputs(rule)
    if rule.on is not Trigger.PUBLISHED:
        check_end_actions(rule)


def check_outputs(rule: Rule) -> None:
    """Refuses a rule that could never fire, because it makes too many messages at once."""
    made = 1 + sum(action.copy is not None for action in rule.do) + len(list_patterns(rule))
    if made > MAX_OUTPUTS:
        raise InvalidInput(
            f"do would publish {made} messages for each match, with copies and human steps; at most"
            f" {MAX_OUTPUTS} are allowed"
        )


def check_end_actions(rule: Rule) -> None:
    if not any(action.route or action.copy for action in rule.do) and not list_patterns(rule):
        raise InvalidInput(
            f"a rule on {rule.on} publishes a message: it needs an action 'route' or 'copy', or"
            " 'escalate' with a pattern"
        )


def check_action(action: Action) -> None:
    given = [name for name in action.__struct_fields__ if getattr(action, name) is not None]
    if len(given) != 1:
        names = ", ".join(given) or "none"
        raise InvalidInput(f"it must have exactly one of {', '.join(action.__struct_fields__)};"
                           f" it has {names}")  # fmt: skip
    check = CHECKS.get(given[0])
    if check is not None:
        check(getattr(action, given[0]))


def check_target(target: str) -> None:
    split_target(target, "")


def check_archive(archive: bool) -> None:
    if not archive:
        raise InvalidInput("archive must be true")


def check_delay(delay: float) -> None:
    check_number("delay", delay, 0.0, MAX_DELAY_S, needed=True)


def check_reason(reason: str) -> None:
    if not REASON.fullmatch(reason):
        raise InvalidInput(f"dead {clip(reason)} is not a reason: up to 64 of a-z, 0-9 and _")


def check_callback(url: str) -> None:
    check_url("callback", url)


def check_set(values: Mapping[str, Any]) -> None:
    if not values:
        raise InvalidInput("set is empty")
    for name, value in values.items():
        kind, _, key = name.partition(".")
        if kind in MAPS and key:
            check_field(FIELDS[kind], {key: value})
        elif name == "priority":
            check_number(name, value, -(2**31), 2**31 - 1, whole=True, needed=True)
        elif name in SETTABLE:
            check_field(FIELDS[SETTABLE[name]], value)
        else:
            known = ", ".join((*SETTABLE, "labels.NAME", "headers.NAME"))
            raise InvalidInput(f"set {clip(name)} is not a field; expected one of {known}")


def check_unset(names: tuple[str, ...]) -> None:
    if not names:
        raise InvalidInput("unset is empty")
    for name in names:
        kind, _, key = name.partition(".")
        if name not in UNSETTABLE and not (kind in MAPS and key):
            known = ", ".join((*UNSETTABLE, "labels.NAME", "headers.NAME"))
            raise InvalidInput(f"unset {clip(name)} is not a field; expected one of {known}")


def check_escalation(escalation: Escalation) -> None:
    given = (escalation.by, escalation.priority, escalation.tier, escalation.pattern)
    if sum(each is not None for each in given) != 1:
        raise InvalidInput("escalate must have exactly one of by, priority, tier, pattern")
    if escalation.parameters and escalation.pattern is None:
        raise InvalidInput("escalate has parameters, but no pattern")
    check_number("escalate by", escalation.by, 1, 1_000_000, whole=True)
    check_number("escalate priority", escalation.priority, -(2**31), 2**31 - 1, whole=True)


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "route": check_target,
    "copy": check_target,
    "set": check_set,
    "unset": check_unset,
    "escalate": check_escalation,
    "archive": check_archive,
    "delay": check_delay,
    "dead": check_reason,
    "callback": check_callback,
}


def split_target(target: str, scope: str) -> Place:
    """Returns scope and queue of `queue` or `scope:queue`."""
    found = TARGET.fullmatch(target)
    if found is None:
        raise InvalidInput(f"target {clip(target)} is not a queue, or scope:queue")
    if found["queue"].startswith("_"):
        raise InvalidInput(f"target {clip(target)}: names that begin with '_' are reserved")
    return found["scope"] or scope, found["queue"]


def list_targets(rule: Rule) -> Iterator[Place]:
    for action in rule.do:
        for target in (action.route, action.copy):
            if target is not None:
                yield split_target(target, rule.scope)


def check_targets(
    rule: Rule, find_queue: Callable[[Place], Queue | None], trusts: Iterable[Trust], allows: Allows
) -> None:
    """Refuses unknown queues, other scopes without a trust, and what the author may not do."""
    trusted = list(trusts)
    makes_shell = any((action.set or {}).get("type") == SHELL_TYPE for action in rule.do)
    for scope, name in dict.fromkeys(list_targets(rule)):
        queue = find_queue((scope, name))
        if queue is None:
            where = "" if scope == "default" else f" in scope {scope!r}"
            raise NotFound(f"rule {rule.name!r}: no queue named {name!r}{where}")
        if scope != rule.scope and not is_trusted(rule.scope, scope, name, trusted):
            raise Forbidden(
                f"rule {rule.name!r}: scope {scope!r} does not trust scope {rule.scope!r} to"
                f" publish to queue {name!r}; `penstock trust` adds a trust"
            )
        rights = [Right.PUBLISH]
        if queue.settings.shell or makes_shell:
            rights.append(Right.SHELL)
        for right in rights:
            if not allows(right, scope, name):
                hint = SHELL_HINT if right is Right.SHELL else ""
                raise Forbidden(
                    f"rule {rule.name!r}: it acts with the rights of its author, who lacks"
                    f" {right!s} on queue {name!r} of scope {scope!r}{hint}"
                )


def list_patterns(rule: Rule) -> list[Escalation]:
    """Lists the human steps that a rule opens."""
    found = (action.escalate for action in rule.do)
    return [each for each in found if each is not None and each.pattern is not None]


def check_patterns(
    rule: Rule, find_pattern: Callable[[Place], HumanPattern | None], allows: Allows
) -> None:
    """Refuses unknown patterns, wrong parameters, and authors who may not open human steps."""
    for escalation in list_patterns(rule):
        pattern = find_pattern((rule.scope, escalation.pattern or ""))
        if pattern is None:
            raise NotFound(f"rule {rule.name!r}: no pattern named {clip(escalation.pattern)}")
        known, given = set(list_parameters(pattern)), set(escalation.parameters)
        if known != given:
            raise InvalidInput(
                f"rule {rule.name!r}: pattern {pattern.name!r} has the parameters"
                f" {', '.join(sorted(known)) or 'none'}, not {', '.join(sorted(given)) or 'none'}"
            )
        if not allows(Right.PUBLISH, rule.scope, HUMAN):
            raise Forbidden(
                f"rule {rule.name!r}: it acts with the rights of its author, who lacks"
                f" {Right.PUBLISH!s} on queue {HUMAN!r} of scope {rule.scope!r}"
            )


def is_trusted(source: str, scope: str, queue: str, trusts: Iterable[Trust]) -> bool:
    return any(
        trust.scope == scope
        and trust.trusted == source
        and is_granted(trust.grants, Right.PUBLISH, queue)
        for trust in trusts
    )


def check_cycles(rule: Rule, others: Iterable[Rule], queues: Iterable[Place]) -> None:
    """Refuses a rule that closes a circle of routes without conditions."""
    rules = [rule, *(each for each in others if each.name != rule.name or each.scope != rule.scope)]
    routing = [(each, set(list_routes(each))) for each in rules if is_unconditional(each)]
    edges: dict[Place, set[Place]] = {}
    for place in queues:
        scope, name = place
        for each, targets in routing:
            if targets and each.scope == scope and match_glob(each.queue, name):
                edges.setdefault(place, set()).update(targets)
    circle = find_circle(edges)
    if circle:
        names = " -> ".join(name if scope == rule.scope else f"{scope}:{name}"
                            for scope, name in circle)  # fmt: skip
        raise InvalidInput(f"rule {rule.name!r} creates a cycle of unconditional routes: {names}")


def is_unconditional(rule: Rule) -> bool:
    everything = not rule.when and rule.type == "*"
    return everything and rule.enabled and rule.on is Trigger.PUBLISHED


def list_routes(rule: Rule) -> Iterator[Place]:
    for action in rule.do:
        if action.route is not None:
            yield split_target(action.route, rule.scope)


def find_circle(edges: Mapping[Place, set[Place]]) -> list[Place]:
    """Returns the queues of a circle, the first one again at its end, or nothing.

    Each route is followed once. A queue that routes to itself is no circle: a glob may match the
    target of its own rule.
    """
    done: set[Place] = set()
    for start in edges:
        trail = {start: iter(edges[start])}
        while trail:
            place, following = next(reversed(trail.items()))
            after = next(following, None)
            if after is None:
                done.add(place)
                del trail[place]
            elif after in trail and after != place:
                places = list(trail)
                return [*places[places.index(after) :], after]
            elif after not in done and after != place:
                trail[after] = iter(edges.get(after, ()))
    return []
