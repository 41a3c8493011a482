"""Evaluates rules on the end of a message, and makes the messages that they publish."""

from msgspec.structs import replace

from penstock.broker.governance import govern_one
from penstock.broker.policy import Policy
from penstock.broker.routing.apply import admit_output
from penstock.broker.routing.dry_run import make_draft_of
from penstock.errors import PenstockError
from penstock.model.message import Draft, HistoryRow, Record, State, Verb
from penstock.model.queue import Queue
from penstock.model.routing import ENDS, RuleFault, Trigger
from penstock.model.store_types import Entry
from penstock.rules.cel import EvaluationError, FieldMissing, get_engine
from penstock.rules.drafts import check_and_make_entry
from penstock.rules.items import is_replaced
from penstock.rules.routing import Routing, make_values, stops
from penstock.rules.routing import remember as add_to_path
from penstock.rules.rule_actions import RuleOutput
from penstock.rules.rule_book import CompiledRule
from penstock.rules.rule_values import add_end_values


def is_end(row: HistoryRow) -> bool:
    """True for ends that rules see: not of messages that a rule archived, a broadcast made, or
    that were moved or edited.
    """
    at_once = row.verb is Verb.PUBLISH and row.state is State.COMPLETED
    return row.state in ENDS and not at_once and not is_replaced(row.state, row.reason)


def has_rules(policy: Policy, row: HistoryRow, queue: Queue | None) -> bool:
    """True if a rule may concern this end, before its message is read."""
    if queue is None or row.state.value not in policy.rules.on_ends:
        return False
    rules = policy.rules.find_book(queue).by_trigger[Trigger(row.state.value)]
    return any(row.at >= rule.stored.since for rule in rules)


class EndEvaluation:
    """Evaluates the rules on one end."""

    def __init__(self, policy: Policy, row: HistoryRow, record: Record, queue: Queue) -> None:
        self.policy = policy
        self.row = row
        self.queue = queue
        self.trigger = Trigger(row.state.value)
        self.draft = replace(
            make_draft_of(record, queue), name=None, parent_id=row.id, causation_id=str(row.id)
        )
        self.routing = Routing([], [], [], [], [])
        self.facts: object = None

    def evaluate(self) -> list[Entry]:
        """Returns the messages to publish."""
        entries: list[Entry] = []
        rules = self.policy.rules.find_book(self.queue).find(
            self.trigger, self.queue.name, self.draft.type
        )
        for rule in filter(self._is_active, rules):
            try:
                if not self._matches(rule, rules.reads):
                    continue
                if stops(self.draft.path, rule):
                    self.routing.loops.append((rule.name, self.queue.id))
                    break
                entries += [self._admit(each, rule) for each in self._apply(rule)]
            except EvaluationError as error:
                self.routing.faults.append(RuleFault(rule.name, str(error)))
                continue
            self.routing.fired.append(rule)
            if not rule.stored.rule.proceed:
                break
        self.policy.rules.monitor.observe(self.routing)
        return entries

    def _is_active(self, rule: CompiledRule) -> bool:
        seen = self.row.at >= rule.stored.since
        return seen and not self.policy.rules.monitor.is_suspended(rule.stored)

    def _bind(self, reads: frozenset[str]) -> object:
        """Returns the message as conditions see it."""
        if self.facts is None:
            values = make_values(self.draft, self.queue, reads)
            add_end_values(values, self.row.id, self.row)
            self.facts = get_engine().bind(values, self.trigger)
        return self.facts

    def _matches(self, rule: CompiledRule, reads: frozenset[str]) -> bool:
        if rule.condition is None:
            return True
        try:
            return rule.condition.test(self._bind(reads))
        except FieldMissing:
            self.routing.missing.append(rule.name)
            return False

    def _apply(self, rule: CompiledRule) -> list[RuleOutput]:
        """Returns the outputs with a target: a rule on an end leaves the ended message alone."""
        sent = RuleOutput(self.draft, self.queue)
        output, copies = rule.actions.apply(sent, self.policy.rules)
        routed = any(action.route is not None for action in rule.stored.rule.do)
        outputs = [*([output] if routed else []), *copies]
        return [add_to_path(replace(each, draft=replace(each.draft, queue=each.queue.name)), rule)
                for each in outputs]  # fmt: skip

    def _admit(self, output: RuleOutput, rule: CompiledRule) -> Entry:
        """Publishes through the rules of the target. A full target keeps it as a dead letter."""
        try:
            if output.state is not None or output.held:
                entry = admit_output(output, output.draft, None, check_and_make_entry)
            else:
                entry = self._govern(output.draft, output.queue)
        except PenstockError as error:
            raise EvaluationError(
                f"queue {output.queue.name!r} rejected the message of rule {rule.name!r}: {error}"
            ) from None
        return replace(entry, overflow="dead")

    def _govern(self, draft: Draft, queue: Queue) -> Entry:
        governed = govern_one(draft, queue, self.policy)
        if isinstance(governed, PenstockError):
            raise governed
        return governed if isinstance(governed, Entry) else check_and_make_entry(governed, queue)
