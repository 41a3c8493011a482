"""Makes the events of human steps that opened or ended from messages and history."""

import msgspec

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.inbox import Inbox
from penstock.broker.waiting.live_events import make_audience
from penstock.errors import NotFound
from penstock.http.events.hub import EncodedEvent, Event
from penstock.model.human import HumanSpec
from penstock.model.live_events import Audience
from penstock.model.message import HistoryRow, StoredMessage
from penstock.model.queue import HUMAN, Queue
from penstock.rules.events import HUMAN_DECIDED, HUMAN_OPENED
from penstock.rules.human_steps import TYPE
from penstock.store import Store
from penstock.wire.fields import to_datetime


def make_opened_event(message: StoredMessage, queue: Queue, cursor: str) -> EncodedEvent:
    assign = msgspec.json.decode(message.body, type=HumanSpec).assign
    event = Event(
        HUMAN_OPENED,
        to_datetime(message.created_at),
        queue.scope.name,
        HUMAN,
        str(message.id),
        TYPE,
        "scheduled",
        correlation_id=message.meta.correlation_id,
    )
    audience = Audience(frozenset(assign.users), frozenset(assign.roles))
    return EncodedEvent(event, queue.scope.tenant, cursor, audience)


async def make_ended_event(
    store: Store, directory: QueueCache, row: HistoryRow, queue: Queue, cursor: str
) -> EncodedEvent | None:
    """Returns None if the step has left the store."""
    inbox = Inbox(store, directory, queue.scope.tenant)
    try:
        found = await inbox.load(row.id, queue.scope.name)
    except NotFound:
        return None
    event = Event(
        HUMAN_DECIDED,
        to_datetime(row.at),
        queue.scope.name,
        HUMAN,
        str(row.id),
        TYPE,
        row.state.value,
        reason=row.reason,
        correlation_id=found.correlation_id,
        by=None if found.decision is None else found.decision.by,
    )
    audience = make_audience(found.step, outcome=True)
    return EncodedEvent(event, queue.scope.tenant, cursor, audience)
