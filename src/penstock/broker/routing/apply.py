"""Applies routing rules to drafts before they are written."""

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.routing.policy import RulePolicy
from penstock.errors import CannotGovern, PenstockError
from penstock.model.broadcast import SEPARATOR
from penstock.model.message import Draft, State
from penstock.model.queue import Queue
from penstock.model.routing import RuleFault
from penstock.model.store_types import Entry
from penstock.model.units import PARENT, Unit
from penstock.rules.cel import get_engine
from penstock.rules.drafts import check, check_and_make_entry, make_dedupe
from penstock.rules.human_steps import make_step_entry
from penstock.rules.priority import clamp_priority
from penstock.rules.routing import MAX_SECONDS, Routing, RuleRouter
from penstock.rules.rule_actions import RULE_ERROR, RuleOutput
from penstock.rules.rule_book import CompiledRule

# Makes the entry of an output. Raises if its queue refuses it.
Admit: TypeAlias = Callable[[Draft, Queue], Entry]


class RoutedDraft(Struct, frozen=True):
    """A draft that no rule touched, or the entry with its copies that rules made of it."""

    made: Draft | Entry
    routing: Routing


def route_draft(draft: Draft, queue: Queue, policy: RulePolicy, admit: Admit) -> RoutedDraft:
    """Applies the rules of the queue.

    A rule whose outputs their queues refuse is left out, or makes the draft a dead letter.
    """
    check(draft, queue.settings)
    excluded = policy.monitor.list_skipped()
    while True:
        router = RuleRouter(get_engine(), policy.find_book, policy, TimeBudget().is_spent, excluded)
        routing = router.route(draft, queue)
        refuse_held(routing, policy)
        try:
            made: Draft | Entry = draft
            if routing.touched:
                made = make_routed_entry(draft, queue, routing, admit)
        except RefusedOutput as refused:
            rule = refused.rule
            policy.monitor.observe(Routing([], [], [RuleFault(rule.name, str(refused))], [], []))
            if rule.stored.rule.on_error == "dead":
                return RoutedDraft(make_dead_entry(draft, queue, rule), routing)
            excluded |= {rule.stored.key}
            continue
        policy.monitor.observe(routing)
        return RoutedDraft(made, routing)


class TimeBudget:
    """The processor time that the rules of one message may take.

    It is read only after as much time has passed, because reading it is slow; a process that had
    to wait for a processor has not spent it.
    """

    def __init__(self) -> None:
        self.until = time.perf_counter() + MAX_SECONDS
        self.began: float | None = None

    def is_spent(self) -> bool:
        if time.perf_counter() <= self.until:
            return False
        if self.began is None:
            # From here on, it counts what the thread really works.
            self.began = time.thread_time()
        return time.thread_time() - self.began > MAX_SECONDS


class RefusedOutput(Exception):
    """The queue that a rule sends a message to refuses it. The text says why."""

    def __init__(self, rule: CompiledRule, text: str) -> None:
        super().__init__(text)
        self.rule = rule


def refuse_held(routing: Routing, policy: RulePolicy) -> None:
    for rule in routing.fired:
        if policy.monitor.is_suspended(rule.stored):
            raise CannotGovern(
                f"rule {rule.name!r} is suspended and blocks matching messages; `penstock rule"
                f" enable {rule.name}` resumes it"
            )


def make_routed_entry(
    draft: Draft, queue: Queue, routing: Routing, admit: Admit = check_and_make_entry
) -> Entry:
    rules = {rule.stored.reference: rule for rule in routing.fired}
    first, *others = routing.outputs
    copies = [replace(each, draft=replace(each.draft, parent_id=PARENT)) for each in others]
    made = [
        admit_output(each, draft, rules.get(each.draft.path[-1]), admit)
        for each in (first, *copies)
    ]
    entry = made[0]
    if draft.dedup is not None:
        dedup = make_dedupe(draft.dedup, draft.body, queue.settings.dedup_by)
        entry = replace(entry, dedup=dedup)
    own = entry.unit or Unit()
    unit = replace(
        own,
        addressed_to=queue.id,
        copies=(*own.copies, *(replace(copy, overflow="dead") for copy in made[1:])),
        # A copy cannot be refused, so what it expects is expected of the whole unit.
        expects=tuple(dict.fromkeys(each for entry in made for each in list_expected(entry))),
    )
    return replace(entry, unit=unit)


def list_expected(entry: Entry) -> tuple[tuple[str, str, int], ...]:
    return () if entry.unit is None else entry.unit.expects


def admit_output(output: RuleOutput, sent: Draft, rule: CompiledRule | None, admit: Admit) -> Entry:
    draft, queue = output.draft, output.queue
    draft = replace(
        draft,
        queue=queue.name,
        priority=clamp_priority(draft.priority, queue.settings),
        causation_id=sent.causation_id or f"rule:{draft.path[-1]}",
    )
    if output.state is not None:
        # It is never delivered, so it neither waits nor blocks its ordering key.
        draft = replace(draft, ordering_key=None, delay=0.0, run_at=None)
    if output.held:
        return make_step_entry(draft, queue)
    try:
        entry = (check_and_make_entry if output.state is not None else admit)(draft, queue)
    except PenstockError as error:
        if rule is None:
            raise
        text = f"queue {queue.name!r} rejected the message of rule {rule.name!r}: {error}"
        raise RefusedOutput(rule, text) from None
    if output.state is None:
        return entry
    return replace(entry, unit=Unit(state=output.state, reason=output.reason))


def make_dead_entry(draft: Draft, queue: Queue, rule: CompiledRule) -> Entry:
    path = (*draft.path, rule.stored.reference)
    dead = RuleOutput(replace(draft, path=path), queue, State.DEAD, RULE_ERROR)
    return make_routed_entry(draft, queue, Routing([dead], [], [], [], []))


def list_routed(entry: Entry, queues: Mapping[int, Queue]) -> tuple[str, ...]:
    """Returns the names of the queues that rules sent a draft to."""
    if entry.unit is None or entry.unit.addressed_to is None:
        return ()
    names = [queues[each.queue_id].name for each in (entry, *entry.unit.copies)]
    return tuple(name for name in names if SEPARATOR not in name)
