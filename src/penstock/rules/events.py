"""Kinds and fields of events, and filters over them."""

import re
from collections.abc import Collection
from urllib.parse import unquote

from penstock.errors import FieldNotHere
from penstock.model.activity import ActivityEntry, Heading
from penstock.model.documents import AuditEntry
from penstock.model.filter import Candidate, Node
from penstock.model.message import HistoryRow, Moment, State, Verb
from penstock.model.queue import Queue
from penstock.rules.filter_match import list_fields
from penstock.rules.filter_parser import parse_filter

ACT = "act"
PUBLISHED = "message.published"
CLAIMED = "message.claimed"
EXTENDED = "message.extended"
WAITING = "message.waiting"
RESUMED = "message.resumed"
SIGNAL_RECEIVED = "signal.received"
HUMAN_OPENED, HUMAN_DECIDED = "human.opened", "human.decided"
HUMAN_REMINDED, HUMAN_ESCALATED = "human.reminded", "human.escalated"
WORKFLOW_BLOCKED, WORKFLOW_ENDED = "workflow.blocked", "workflow.ended"
# Kinds about waiting that are not in the history.
LIVE_WAIT_KINDS = (
    RESUMED, SIGNAL_RECEIVED, HUMAN_REMINDED, HUMAN_ESCALATED, WORKFLOW_BLOCKED, WORKFLOW_ENDED,
)  # fmt: skip
KINDS_OF_VERBS = {
    Verb.REDRIVE: "message.redriven",
    Verb.RELEASE: "message.released",
    Verb.PARK: "message.parked",
    Verb.RECLAIM: "message.lease_lost",
}
# Kinds of history rows.
HISTORY_KINDS = (
    *sorted(KINDS_OF_VERBS.values()), WAITING, "message.retried", "message.dead",
    "message.completed", "message.failed", "message.expired", "message.cancelled",
)  # fmt: skip
ACTIVITY_KINDS = (*HISTORY_KINDS, ACT)
# Fields of a message that its events carry.
EVENT_FIELDS = (
    "state", "queue", "scope", "type", "id", "correlation", "consumer", "reason", "error",
    "error.kind", "attempts",
)  # fmt: skip
# Names of fields that are written in another way.
SPELLINGS = {"created": "created or age"}
STATES = frozenset(State)
QUEUE_PATH = re.compile(r"/v1/queues/([^/?]+)")
MESSAGE_PATH = re.compile(r"/v1/messages/(\d{1,19})(?:[/?]|$)")


def classify(row: HistoryRow) -> str:
    """Returns the kind of event of a history row."""
    if row.state is State.DEAD:
        return "message.dead"
    if row.verb in KINDS_OF_VERBS:
        return KINDS_OF_VERBS[row.verb]
    if row.verb is Verb.WAIT and row.state is State.SCHEDULED:
        return WAITING
    if row.state in (State.SCHEDULED, State.READY):
        return "message.retried"
    return f"message.{row.state}"


def parse_event_filter(text: str, now: Moment) -> Node:
    """Parses a filter over events. Raises FieldNotHere for a field that they lack."""
    node = parse_filter(text, now)
    check_fields(node, EVENT_FIELDS)
    return node


def check_fields(node: Node, known: Collection[str]) -> None:
    for term in list_fields(node):
        if term.field not in known:
            name = ".".join((SPELLINGS.get(term.field, term.field), *term.path))
            raise FieldNotHere(
                f"events do not carry {name[:100]}; filter them by {', '.join(known)}"
            )


def make_history_entry(row: HistoryRow, queue: Queue, heading: Heading | None) -> ActivityEntry:
    return ActivityEntry(
        at=row.at,
        source="history",
        position=row.position,
        kind=classify(row),
        scope=queue.scope.name,
        queue=queue.name,
        id=row.id,
        type=None if heading is None else heading.type,
        state=row.state.value,
        attempts=row.attempts,
        consumer=row.consumer,
        reason=row.reason,
        error=row.error,
        correlation_id=None if heading is None else heading.correlation_id,
    )


def make_act_entry(act: AuditEntry) -> ActivityEntry:
    return ActivityEntry(
        at=act.at,
        source="audit",
        position=act.id,
        kind=ACT,
        scope=act.scope,
        queue=find_act_queue(act) or "",
        id=find_act_message(act),
        subject=act.subject,
        verb=act.verb,
        target=act.target,
        detail=act.detail or None,
        request_id=act.request_id or None,
    )


def find_act_queue(act: AuditEntry) -> str | None:
    """Returns the queue that an act changed. Commands name it, requests have it in their path."""
    if found := QUEUE_PATH.match(act.target):
        return unquote(found[1])
    return act.target.split(" ")[0] if act.verb.startswith("queue ") else None


def find_act_message(act: AuditEntry) -> int | None:
    if found := MESSAGE_PATH.match(act.target):
        return int(found[1])
    by_command = act.verb in ("cancel", "redrive") or act.verb.startswith("dlq ")
    return int(act.target) if by_command and is_id(act.target) else None


def is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def make_candidate(entry: ActivityEntry) -> Candidate:
    """Returns the fields of an entry that a filter tests."""
    return Candidate(
        state=State(entry.state) if entry.state in STATES else None,
        queue=entry.queue or None,
        scope=entry.scope or None,
        type=entry.type,
        id=entry.id,
        correlation=entry.correlation_id,
        consumer=entry.consumer,
        reason=entry.reason,
        error=entry.error,
        attempts=entry.attempts,
    )
