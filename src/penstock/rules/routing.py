"""Routes drafts by rules: which rules match, in which order, and where loops end."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.message import Draft, State
from penstock.model.queue import Queue
from penstock.model.routing import MAX_OUTPUTS, MAX_PATH, RuleFault, Trigger, Values
from penstock.rules.cel import EvaluationError, FieldMissing, RuleEngine
from penstock.rules.rule_actions import RULE_ERROR, RuleOutput, RuleTargets
from penstock.rules.rule_book import CompiledRule, RuleBook, RuleGroup, RuleSet
from penstock.rules.rule_values import add_body, list_values

# Processor time that the rules of one message may take.
MAX_SECONDS = 0.005


class Routing(Struct, frozen=True):
    """The outcome of the rules for one draft. The first output is the draft itself."""

    outputs: list[RuleOutput]
    fired: list[CompiledRule]
    faults: list[RuleFault]
    # Rules whose conditions read a field that the message does not have.
    missing: list[str]
    # Rules that would have fired again for the same lineage, each with the id of the queue.
    loops: list[tuple[str, int]]

    @property
    def touched(self) -> bool:
        return bool(self.fired or self.outputs[0].state is not None)


class RoutingStep:
    """A message at one queue, while the rules of that queue are applied."""

    def __init__(self, output: RuleOutput, rules: RuleSet, room: int) -> None:
        self.output = output
        self.queue = output.queue
        self.rules = rules
        # How many copies may still be made.
        self.room = room
        self.copies: list[RuleOutput] = []
        # The values that conditions see. None after a change of the message.
        self.facts: Any = None


class RuleRouter:
    """Evaluates rules. `find_book` returns the rules of the scope of a queue."""

    def __init__(
        self,
        engine: RuleEngine,
        find_book: Callable[[Queue], RuleBook],
        targets: RuleTargets,
        budget: Callable[[], bool],
        excluded: frozenset[tuple[str, str, str]] = frozenset(),
    ) -> None:
        self.engine = engine
        self.find_book = find_book
        self.targets = targets
        # Returns True once the rules of a message have taken too long.
        self.is_late = budget
        self.excluded = excluded

    def route(self, draft: Draft, queue: Queue) -> Routing:
        """Follows a published draft through the rules of each queue that it comes to."""
        routing = Routing([], [], [], [], [])
        pending = [RuleOutput(draft, queue)]
        while pending:
            output = pending.pop(0)
            if output.held:
                routing.outputs.append(output)
                continue
            copies: list[RuleOutput] = []
            while True:
                before = output.queue
                others = len(routing.outputs) + len(pending) + len(copies) + 1
                output, more = self.step(output, routing, MAX_OUTPUTS - others)
                copies += more
                if output.state is not None or output.queue.id == before.id:
                    break
            routing.outputs.append(output)
            pending += copies
        return routing

    def step(
        self, output: RuleOutput, routing: Routing, room: int
    ) -> tuple[RuleOutput, list[RuleOutput]]:
        """Applies the rules of the queue that the message is at."""
        queue = output.queue
        book = self.find_book(queue)
        hop = RoutingStep(output, book.find(Trigger.PUBLISHED, queue.name, output.draft.type), room)
        for group in hop.rules.groups:
            if group.any is not None and not group.may_match(self.bind(hop)):
                continue
            if self.apply_group(group, hop, routing):
                break
        return hop.output, hop.copies

    def apply_group(self, group: RuleGroup, hop: "RoutingStep", routing: Routing) -> bool:
        """Applies the rules of a group. Returns True if one was the last one of this queue."""
        for rule in group.rules:
            if self.excluded and rule.stored.key in self.excluded:
                continue
            try:
                if self.apply(rule, hop, routing):
                    return True
            except EvaluationError as error:
                routing.faults.append(RuleFault(rule.name, str(error)))
                if rule.stored.rule.on_error == "dead":
                    hop.output = kill(hop.output, rule)
                    return True
        return False

    def bind(self, hop: "RoutingStep") -> Any:
        """Returns the message as conditions see it."""
        if hop.facts is None:
            values = make_values(hop.output.draft, hop.queue, hop.rules.reads)
            hop.facts = self.engine.bind(values, Trigger.PUBLISHED)
        return hop.facts

    def apply(self, rule: CompiledRule, hop: "RoutingStep", routing: Routing) -> bool:
        """Applies a rule if it matches. Returns True if it is the last one of this queue."""
        if not self.matches(rule, hop, routing):
            return False
        if stops(hop.output.draft.path, rule):
            routing.loops.append((rule.name, hop.queue.id))
            return True
        changed, copies = rule.actions.apply(hop.output, self.targets)
        if len(hop.copies) + len(copies) > hop.room:
            raise EvaluationError(f"more than {MAX_OUTPUTS} messages for one draft")
        routing.fired.append(rule)
        hop.output = remember(changed, rule)
        hop.copies += [remember(each, rule) for each in copies]
        hop.facts = None
        return not rule.stored.rule.proceed or hop.output.state is not None

    def matches(self, rule: CompiledRule, hop: "RoutingStep", routing: Routing) -> bool:
        if rule.condition is None:
            return True
        try:
            matched = rule.condition.test(self.bind(hop))
        except FieldMissing:
            routing.missing.append(rule.name)
            matched = False
        if self.is_late():
            raise EvaluationError(f"the rules took more than {MAX_SECONDS * 1000:.0f} ms")
        return matched


def stops(path: Sequence[str], rule: CompiledRule) -> bool:
    """True if the rule fired before in this lineage, or the lineage is too long."""
    return len(path) >= MAX_PATH or any(each.rpartition("@")[0] == rule.name for each in path)


def remember(output: RuleOutput, rule: CompiledRule) -> RuleOutput:
    path = (*output.draft.path, rule.stored.reference)
    return replace(output, draft=replace(output.draft, path=path))


def kill(output: RuleOutput, rule: CompiledRule) -> RuleOutput:
    """Keeps a message that a rule could not be evaluated for as a dead letter."""
    return replace(remember(output, rule), state=State.DEAD, reason=RULE_ERROR)


def make_values(draft: Draft, queue: Queue, reads: frozenset[str]) -> Values:
    """Returns what conditions see. The body is only parsed if one of them reads it."""
    values = list_values(draft, queue, reads)
    if "body" in reads:
        add_body(values, draft.body, draft.content_type)
    return values
