"""Stores live events about waiting for a minute, so that every server can send them."""

import secrets

import msgspec

from penstock.broker.queue_cache import QueueCache
from penstock.model.documents import Document
from penstock.model.live_events import Audience, LiveEvent
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import HUMAN
from penstock.model.workflow import Workflow, WorkflowState
from penstock.rules.events import SIGNAL_RECEIVED, WORKFLOW_BLOCKED, WORKFLOW_ENDED
from penstock.rules.human import OpenStep
from penstock.rules.human_steps import TYPE
from penstock.store import Store

LIVE_EVENT = "live_event"
KEPT_S = 60
PAGE = 1_000
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(LiveEvent).decode


def make_event_document(event: LiveEvent) -> Document:
    return Document(
        kind=LIVE_EVENT,
        name=f"{format_moment(event.at)}-{secrets.token_hex(6)}",
        body=encode(event),
        expires_at=event.at + KEPT_S * MICROS_PER_SECOND,
    )


def format_moment(at: Moment) -> str:
    """Returns the beginning of the names of events at a moment."""
    return f"{at:020d}"


async def read_live_events(store: Store, since: Moment) -> dict[str, LiveEvent]:
    """Returns the events since a moment by name, oldest first."""
    found: dict[str, LiveEvent] = {}
    after = format_moment(since)
    while True:
        page = await store.documents(LIVE_EVENT, after, PAGE)
        found |= {each.name: decode(each.body) for each in page}
        if len(page) < PAGE:
            return found
        after = page[-1].name


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


class SignalLog:
    """Collects received signals and stores their events together, after the signals."""

    def __init__(self, store: Store, directory: QueueCache) -> None:
        self.store = store
        self.directory = directory
        self.received: list[tuple[int, str]] = []

    def note(self, id: int, name: str) -> None:
        self.received.append((id, name))

    async def flush(self) -> None:
        batch = self.received[:PAGE]
        if not batch:
            return
        now = await self.store.now()
        found = await self.store.get_many(list(dict.fromkeys(id for id, _ in batch)))
        messages = {record.message.id: record for record in found}
        events = []
        for id, name in batch:
            if (record := messages.get(id)) is not None:
                queue = await self.directory.get_by_id(record.message.queue_id)
                event = LiveEvent(
                    kind=SIGNAL_RECEIVED,
                    at=now,
                    tenant=queue.scope.tenant,
                    scope=queue.scope.name,
                    queue=queue.name,
                    id=str(id),
                    type=record.message.type,
                    state=record.state.value,
                    reason=name,
                    correlation_id=record.message.meta.correlation_id,
                )
                events.append(make_event_document(event))
        await self.store.save_documents(events)
        del self.received[: len(batch)]
