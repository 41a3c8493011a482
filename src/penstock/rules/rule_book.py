"""Indexes the rules of a scope, and detects quickly that none of them matches a message."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.message import Draft
from penstock.model.routing import StoredRule, Trigger
from penstock.rules.cel import Condition, EvaluationError, FieldMissing, RuleEngine
from penstock.rules.globs import match_glob
from penstock.rules.rule_actions import Actions

MAX_CACHED_MATCHES = 10_000
OF_QUEUE = frozenset(("queue", "scope"))
# Conditions that are tried as one expression.
MAX_GROUP = 16


class CompiledRule:
    """A rule that is ready to be evaluated."""

    def __init__(self, stored: StoredRule, engine: RuleEngine) -> None:
        rule = stored.rule
        self.stored = stored
        self.name = rule.name
        self.engine = engine
        self.condition: Condition | None = None
        if rule.when:
            self.condition = engine.compile(rule.when, rule.on)
        self.actions = Actions(stored)

    @property
    def reads(self) -> frozenset[str]:
        """The fields that its condition may read."""
        return self.condition.reads if self.condition is not None else frozenset()

    def concerns(self, queue: str, type: str) -> bool:
        return match_glob(self.stored.rule.queue, queue) and match_glob(self.stored.rule.type, type)


class RuleGroup:
    """Rules that follow each other. One evaluation shows whether none of them matches."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self.rules = rules
        self.any: Condition | None = None
        if len(rules) > 1:
            first = rules[0].stored.rule.on
            texts = tuple(each.stored.rule.when for each in rules)
            try:
                self.any = rules[0].engine.compile_any(texts, first)
            except InvalidInput:
                # Together they are too large, so each is evaluated alone.
                return

    def may_match(self, facts: Any) -> bool:
        """False if every condition is false. A condition that fails is evaluated alone."""
        if self.any is None:
            return True
        try:
            return self.any.test(facts)
        except (FieldMissing, EvaluationError):
            return True


class RuleSet:
    """The rules of one trigger that concern the messages of a type in a queue."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self.rules = rules
        self.reads = frozenset[str]().union(*(each.reads for each in rules))
        self.groups = tuple(map(RuleGroup, split_into_groups(rules)))
        # Returns what the conditions read of a draft; None if they read the body.
        self.read_fields = make_reader(self.reads)

    def __iter__(self) -> Iterator[CompiledRule]:
        return iter(self.rules)


def make_reader(reads: frozenset[str]) -> Callable[[Draft], object] | None:
    if not reads.isdisjoint(("body", "size")):
        return None
    fields = sorted(("ordering_key" if name == "key" else name) for name in reads - OF_QUEUE)
    return attrgetter("type", *fields)


def split_into_groups(rules: tuple[CompiledRule, ...]) -> Iterator[tuple[CompiledRule, ...]]:
    """Groups neighbors with a condition. Rules without one always match."""
    for conditional, found in groupby(rules, lambda each: each.condition is not None):
        run = tuple(found)
        size = MAX_GROUP if conditional else 1
        for start in range(0, len(run), size):
            yield run[start : start + size]


class RuleBook:
    """The active rules of one scope, by trigger and in their order."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        found = [each for each in rules if each.stored.active]
        found.sort(key=lambda each: (each.stored.rule.order, each.name))
        self.by_trigger = {
            trigger: tuple(each for each in found if each.stored.rule.on is trigger)
            for trigger in Trigger
        }
        self.cached: dict[tuple[Trigger, str, str], RuleSet] = {}
        # Messages of many types meet the same rules, which are grouped once.
        self.sets: dict[tuple[CompiledRule, ...], RuleSet] = {}
        self.globs = frozenset(
            each.stored.rule.queue for each in self.by_trigger[Trigger.PUBLISHED]
        )
        self.governed: dict[str, bool] = {}

    def governs(self, queue: str) -> bool:
        found = self.governed.get(queue)
        if found is None:
            found = any(match_glob(glob, queue) for glob in self.globs)
            self.governed[queue] = found
        return found

    def find(self, trigger: Trigger, queue: str, type: str) -> RuleSet:
        """Returns the rules whose globs fit."""
        asked = (trigger, queue, type)
        found = self.cached.get(asked)
        if found is None:
            rules = tuple(each for each in self.by_trigger[trigger] if each.concerns(queue, type))
            if len(self.cached) >= MAX_CACHED_MATCHES:
                self.cached.clear()
                self.sets.clear()
            found = self.sets.get(rules)
            if found is None:
                found = self.sets[rules] = RuleSet(rules)
            self.cached[asked] = found
        return found


NO_RULES = RuleBook(())
