"""Governs drafts: applies the policy of their queue before they are published.

Publish, schedules, replay and the Spark sink call `govern` for queues with `governed` set.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from penstock.broker.broadcast.fanout import fan_out
from penstock.broker.policy import BoundSchema, Policy
from penstock.broker.routing.apply import RoutedDraft, route_draft
from penstock.errors import PenstockError, SchemaMismatch
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.model.routing import Trigger
from penstock.model.schemas import Mismatch
from penstock.model.store_types import Entry
from penstock.rules.drafts import check_and_make_entry
from penstock.rules.routing import Routing
from penstock.rules.schemas import find_mismatches

Governed: TypeAlias = Draft | Entry | PenstockError


class UnroutedDraft(Struct, frozen=True):
    """A draft that no rule touched. No rule touches another one with the same fields either."""

    read: Callable[[Draft], object]
    fields: object
    routing: Routing

    def covers(self, draft: Draft) -> bool:
        return self.read(draft) == self.fields


def govern(drafts: Sequence[Draft], queue: Queue, policy: Policy) -> list[Governed]:
    """Returns for each draft the draft, the entry that rules made of it, or its refusal."""
    has_schemas, has_rules = policy.has_schemas(queue), policy.rules.governs(queue)
    broadcast = queue.settings.kind == "broadcast"
    governed: list[Governed] = []
    untouched: UnroutedDraft | None = None
    for draft in drafts:
        outcome: Governed = draft
        try:
            if has_schemas:
                check_schemas(draft, queue, policy)
            if untouched is not None and untouched.covers(draft):
                if untouched.routing.missing:
                    policy.rules.monitor.observe(untouched.routing)
            elif has_rules:
                routed = route(draft, queue, policy)
                outcome = routed.made
                untouched = find_untouched(routed, draft, queue, policy)
            if broadcast and outcome is draft:
                outcome = fan_out(draft, queue, policy.broadcasts)
        except PenstockError as error:
            outcome = error
        governed.append(outcome)
    return governed


def govern_one(draft: Draft, queue: Queue, policy: Policy) -> Governed:
    (governed,) = govern((draft,), queue, policy)
    return governed


def route(draft: Draft, queue: Queue, policy: Policy) -> RoutedDraft:
    def admit_output(output: Draft, target: Queue) -> Entry:
        if target.id != queue.id or output.body != draft.body:
            check_schemas(output, target, policy)
        return admit_to(output, target, policy)

    return route_draft(draft, queue, policy.rules, admit_output)


def find_untouched(
    routed: RoutedDraft, draft: Draft, queue: Queue, policy: Policy
) -> UnroutedDraft | None:
    """Returns None if a rule fired or failed, or if a condition reads bodies, which differ."""
    routing = routed.routing
    if routed.made is not draft or routing.faults or routing.loops:
        return None
    rules = policy.rules.find_book(queue).find(Trigger.PUBLISHED, queue.name, draft.type)
    if rules.read_fields is None:
        return None
    return UnroutedDraft(rules.read_fields, rules.read_fields(draft), routing)


def admit_to(draft: Draft, queue: Queue, policy: Policy) -> Entry:
    if queue.settings.kind == "broadcast":
        return fan_out(draft, queue, policy.broadcasts)
    return check_and_make_entry(draft, queue)


def check_schemas(draft: Draft, queue: Queue, policy: Policy) -> None:
    """Raises SchemaMismatch if the body does not match every schema of its queue and type."""
    type: object = draft.type
    body: object = draft.body
    if not isinstance(type, str) or not isinstance(body, bytes):
        # The check of the draft refuses it.
        return
    for schema in policy.find_schemas(queue, type):
        assert schema.validator is not None
        if found := find_mismatches(schema.validator, body, countless=schema.countless):
            raise make_mismatch_error(found, schema, draft, queue)


def make_mismatch_error(
    found: Sequence[Mismatch], schema: BoundSchema, draft: Draft, queue: Queue
) -> SchemaMismatch:
    problems = "; ".join(f"{each.pointer or '/'}: {each.text} ({each.keyword})" for each in found)
    error = SchemaMismatch(
        f"the body of type {draft.type[:100]!r} does not match schema {schema.reference} of queue"
        f" {queue.name!r}: {problems}"
    )
    error.details = tuple((each.pointer, f"{each.keyword}: {each.text}") for each in found)
    return error
