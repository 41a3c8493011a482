"""Stores live events about waiting for a minute, so that every server can send them."""

import secrets

import msgspec
from msgspec.structs import replace

from penstock.model.activity import Heading
from penstock.model.documents import Document
from penstock.model.live_events import Audience, LiveEvent
from penstock.model.message import Moment
from penstock.model.queue import HUMAN, Queue
from penstock.model.waiting import SignalDraft
from penstock.model.workflow import Workflow, WorkflowState
from penstock.rules.events import SIGNAL_RECEIVED, WORKFLOW_BLOCKED, WORKFLOW_ENDED
from penstock.rules.human import OpenStep
from penstock.rules.human_steps import TYPE
from penstock.rules.live_events import LIVE_EVENT, format_moment, make_document, read_moment
from penstock.store import Store

PAGE_SIZE = 1_000
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(LiveEvent).decode


def make_event_document(event: LiveEvent) -> Document:
    return make_document(event.at, secrets.token_hex(6), encode(event))


async def read_live_events(store: Store, since: Moment) -> dict[str, LiveEvent]:
    """Returns the events since a moment by name, oldest first."""
    found: dict[str, LiveEvent] = {}
    after = format_moment(since)
    while True:
        page = await store.documents(LIVE_EVENT, after, PAGE_SIZE)
        found |= {each.name: decode_event(each) for each in page}
        if len(page) < PAGE_SIZE:
            return found
        after = page[-1].name


def decode_event(stored: Document) -> LiveEvent:
    return replace(decode(stored.body), at=read_moment(stored.name))


def make_audience(step: OpenStep, *, outcome: bool = False) -> Audience:
    """Returns the people and roles of a step. The requester sees the outcome too."""
    users = {*step.spec.assign.users, *step.state.delegates}
    if outcome and step.requester:
        users.add(step.requester)
    return Audience(
        frozenset(users), frozenset({*step.spec.assign.roles, *step.state.escalated_to})
    )


def make_human_event(
    kind: str, step: OpenStep, *, at: Moment, tenant: str, scope: str, reason: str | None = None
) -> LiveEvent:
    """Makes an event of an open step, as it is after the change."""
    return LiveEvent(
        kind=kind,
        at=at,
        tenant=tenant,
        scope=scope,
        queue=HUMAN,
        id=str(step.id),
        type=TYPE,
        state="scheduled",
        reason=reason,
        audience=make_audience(step),
    )


def make_workflow_event(flow: Workflow, at: Moment) -> LiveEvent:
    """Makes the event of a workflow that is blocked or has ended."""
    return LiveEvent(
        kind=WORKFLOW_BLOCKED if flow.state is WorkflowState.BLOCKED else WORKFLOW_ENDED,
        at=at,
        tenant=flow.tenant,
        scope=flow.scope,
        id=flow.id,
        type=flow.name,
        state=flow.state.value,
        correlation_id=flow.correlation_id,
        audience=Audience(queues=frozenset(node.queue for node in flow.nodes)),
    )


def encode_signal_event(
    draft: SignalDraft, heading: Heading, queue: Queue, state: str | None = None
) -> bytes:
    """Encodes the event of a signal. The store dates it when it stores the signal."""
    return encode(
        LiveEvent(
            kind=SIGNAL_RECEIVED,
            at=0,
            tenant=queue.scope.tenant,
            scope=queue.scope.name,
            queue=queue.name,
            id=str(draft.id),
            type=heading.type,
            state=state,
            reason=draft.name,
            correlation_id=heading.correlation_id,
        )
    )
