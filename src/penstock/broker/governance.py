"""Governs drafts: applies the policy of their queue before they are published.

Publish, schedules, replay and the Spark sink call `govern` for queues with `governed` set.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import astuple

from penstock.broker.broadcast.fanout import fan_out
from penstock.broker.policy import BoundSchema, Policy
from penstock.broker.routing.apply import route_draft
from penstock.errors import PenstockError, SchemaMismatch
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.model.schemas import Mismatch
from penstock.model.store_types import Entry
from penstock.rules.drafts import check_and_make_entry
from penstock.rules.schemas import find_mismatches

Governed: TypeAlias = Draft | Entry | PenstockError


def govern(drafts: Sequence[Draft], queue: Queue, policy: Policy) -> list[Governed]:
    """Returns for each draft the draft, the entry that rules made of it, or its refusal."""
    governed: list[Governed] = []
    # The fields of a draft that nothing touches, whatever its body is.
    untouched: tuple[object, ...] | None = None
    for draft in drafts:
        heading = astuple(draft)[:-1]
        if heading == untouched:
            governed.append(draft)
            continue
        outcome = govern_one(draft, queue, policy)
        governed.append(outcome)
        if outcome is draft and policy.ignores_bodies(queue, draft.type):
            untouched = heading
    return governed


def govern_one(draft: Draft, queue: Queue, policy: Policy) -> Governed:
    def admit_output(output: Draft, target: Queue) -> Entry:
        if target.id != queue.id or output.body != draft.body:
            check_schemas(output, target, policy)
        return admit_to(output, target, policy)

    try:
        check_schemas(draft, queue, policy)
        routed: Draft | Entry = draft
        if policy.rules.governs(queue):
            routed = route_draft(draft, queue, policy.rules, admit_output)
        if isinstance(routed, Draft) and queue.settings.kind == "broadcast":
            return fan_out(draft, queue, policy.broadcasts)
        return routed
    except PenstockError as error:
        return error


def admit_to(draft: Draft, queue: Queue, policy: Policy) -> Entry:
    if queue.settings.kind == "broadcast":
        return fan_out(draft, queue, policy.broadcasts)
    return check_and_make_entry(draft, queue)


def check_schemas(draft: Draft, queue: Queue, policy: Policy) -> None:
    """Raises SchemaMismatch if the body does not fit every schema of its queue and type."""
    type: object = draft.type
    body: object = draft.body
    if not isinstance(type, str) or not isinstance(body, bytes):
        # The check of the draft refuses it.
        return
    for schema in policy.find_schemas(queue, type):
        assert schema.validator is not None
        if found := find_mismatches(schema.validator, body):
            raise make_mismatch_error(found, schema, draft, queue)


def make_mismatch_error(
    found: Sequence[Mismatch], schema: BoundSchema, draft: Draft, queue: Queue
) -> SchemaMismatch:
    problems = "; ".join(f"{each.pointer or '/'}: {each.text} ({each.keyword})" for each in found)
    error = SchemaMismatch(
        f"the body of type {draft.type[:100]!r} does not fit schema {schema.reference} of queue"
        f" {queue.name!r}: {problems}"
    )
    error.details = tuple((each.pointer, f"{each.keyword}: {each.text}") for each in found)
    return error
