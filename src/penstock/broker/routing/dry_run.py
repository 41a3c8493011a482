"""Tries rules on stored messages without writing anything: dry run and coverage."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from penstock.broker.queue_cache import QueueCache
from penstock.model.fields import copy_message_fields
from penstock.model.message import Draft, Record
from penstock.model.queue import Queue
from penstock.model.routing import RuleCoverage, RuleEffect, RuleTest, Trigger
from penstock.rules.cel import EvaluationError, FieldMissing, get_engine
from penstock.rules.items import is_replaced
from penstock.rules.rule_actions import RuleOutput
from penstock.rules.rule_book import CompiledRule
from penstock.rules.rule_values import add_body, add_end_values, list_values

MAX_SHOWN = 100
Verdict: TypeAlias = Literal["match", "no_match", "missing_field", "error"]


def make_draft_of(record: Record, queue: Queue) -> Draft:
    """Returns a message as the draft that it was published from, as far as rules see it."""
    message, meta = record.message, record.message.meta
    return Draft(
        queue=queue.name,
        type=message.type,
        priority=message.priority,
        body=message.body,
        **copy_message_fields(meta),
        hops=meta.hops,
        path=meta.path,
        publisher=meta.publisher,
    )


def make_facts(trigger: Trigger, record: Record, draft: Draft, queue: Queue) -> object:
    values = list_values(draft, queue)
    add_body(values, draft.body, draft.content_type)
    if trigger is not Trigger.PUBLISHED:
        add_end_values(values, record.message.id, record)
    return get_engine().bind(values, trigger)


def judge(rule: CompiledRule, facts: object) -> tuple[Verdict, str]:
    if rule.condition is None:
        return "match", ""
    try:
        return ("match" if rule.condition.test(facts) else "no_match"), ""
    except FieldMissing as missing:
        return "missing_field", str(missing)
    except EvaluationError as error:
        return "error", str(error)


def list_candidates(
    trigger: Trigger, directory: QueueCache, records: Iterable[Record]
) -> Iterator[tuple[Record, Queue, Draft]]:
    """Lists the messages that a rule on this trigger would have seen."""
    for record in records:
        queue = directory.by_id.get(record.message.queue_id)
        if queue is not None and triggers(trigger, record):
            yield record, queue, make_draft_of(record, queue)


def triggers(trigger: Trigger, record: Record) -> bool:
    if trigger is Trigger.PUBLISHED:
        return True
    return trigger == record.state.value and not is_replaced(record.state, record.reason)


def try_rule(rule: CompiledRule, directory: QueueCache, records: Sequence[Record]) -> RuleTest:
    """Applies a rule among the saved ones, as if it were one of them."""
    counts: Counter[str] = Counter()
    effects: list[RuleEffect] = []
    trigger = rule.stored.rule.on
    for record, queue, draft in list_candidates(trigger, directory, records):
        counts["tried"] += 1
        if not rule.concerns(queue.name, draft.type):
            continue
        facts = make_facts(trigger, record, draft, queue)
        verdict: str
        verdict, note = judge(rule, facts)
        if verdict == "match" and (earlier := find_earlier(rule, directory, queue, draft, facts)):
            verdict, note = "shadowed", earlier
        counts[verdict] += 1
        if verdict != "no_match" and len(effects) < MAX_SHOWN:
            effect = RuleEffect(str(record.message.id), queue.name, draft.type, verdict, note=note)
            effects.append(add_outputs(effect, rule, directory, draft, queue))
    return RuleTest(
        tried=counts["tried"],
        matched=counts["match"],
        shadowed=counts["shadowed"],
        missing_field=counts["missing_field"],
        errors=counts["error"],
        effects=effects,
    )


def find_earlier(
    rule: CompiledRule, directory: QueueCache, queue: Queue, draft: Draft, facts: object
) -> str:
    """Returns the saved rule that takes the message before this one, or nothing."""
    mine = (rule.stored.rule.order, rule.name)
    book = directory.policy.rules.find_book(queue)
    for each in book.find(rule.stored.rule.on, queue.name, draft.type):
        if (each.stored.rule.order, each.name) >= mine:
            return ""
        final = each.name != rule.name and not each.stored.rule.proceed
        if final and judge(each, facts)[0] == "match":
            return each.name
    return ""


def add_outputs(
    effect: RuleEffect, rule: CompiledRule, directory: QueueCache, draft: Draft, queue: Queue
) -> RuleEffect:
    """Adds where the rule would have sent the message, and what it would have changed."""
    if effect.verdict != "match":
        return effect
    bare = replace(draft, path=())
    try:
        output, copies = rule.actions.apply(RuleOutput(bare, queue), directory.policy.rules)
    except EvaluationError as error:
        return replace(effect, verdict="error", note=str(error))
    changed = [
        name
        for name in draft.__struct_fields__
        if getattr(bare, name) != getattr(output.draft, name)
    ]
    return replace(effect, outputs=list(map(describe_output, (output, *copies))), changed=changed)


def describe_output(output: RuleOutput) -> str:
    return output.queue.name if output.state is None else f"{output.queue.name} ({output.state})"


def cover_rules(
    rules: Sequence[CompiledRule], directory: QueueCache, records: Sequence[Record]
) -> list[RuleCoverage]:
    counts: dict[str, Counter[str]] = {rule.name: Counter() for rule in rules}
    for trigger in Trigger:
        fitting = [rule for rule in rules if rule.stored.rule.on is trigger]
        if not fitting:
            continue
        for record, queue, draft in list_candidates(trigger, directory, records):
            count_verdicts(fitting, record, queue, draft, counts)
            if trigger is Trigger.PUBLISHED and draft.path:
                count_routed({rule.name: rule for rule in fitting}, queue, draft, counts)
    return [
        RuleCoverage(
            name=rule.name,
            on=rule.stored.rule.on,
            order=rule.stored.rule.order,
            enabled=rule.stored.active,
            seen=counts[rule.name]["seen"],
            matched=counts[rule.name]["match"],
            shadowed=counts[rule.name]["shadowed"],
            missing_field=counts[rule.name]["missing_field"],
            errors=counts[rule.name]["error"],
        )
        for rule in rules
    ]


def count_verdicts(
    rules: Sequence[CompiledRule],
    record: Record,
    queue: Queue,
    draft: Draft,
    counts: dict[str, Counter[str]],
) -> None:
    """Judges one message by the rules of one trigger, in their order."""
    facts = make_facts(rules[0].stored.rule.on, record, draft, queue)
    taken = False
    for rule in rules:
        if not rule.concerns(queue.name, draft.type):
            continue
        verdict, _ = judge(rule, facts)
        counts[rule.name]["seen"] += 1
        counts[rule.name]["shadowed" if verdict == "match" and taken else verdict] += 1
        if verdict == "match" and rule.stored.active and not rule.stored.rule.proceed:
            taken = True


def count_routed(
    rules: Mapping[str, CompiledRule], queue: Queue, draft: Draft, counts: dict[str, Counter[str]]
) -> None:
    """Counts the rule that routed a message here from a queue in which it is no longer found."""
    name, _, _ = draft.path[-1].rpartition("@")
    rule = rules.get(name)
    if rule is None or rule.concerns(queue.name, draft.type):
        return
    if any(action.route == queue.name for action in rule.stored.rule.do):
        counts[name].update(("seen", "match"))
