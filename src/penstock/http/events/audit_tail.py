"""Sends new entries of the audit log to event streams that ask for them."""

from penstock.broker.activity.reader import ActReader
from penstock.http.events.hub import EncodedEvent, Event, Hub
from penstock.model.documents import AuditEntry
from penstock.rules.events import make_act_entry
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime


class AuditTail:
    """Reads the audit log while a listener asks for the kind `act`."""

    name = "audit_tail"
    every = 1.0

    def __init__(self, store: Store, hub: Hub) -> None:
        self.store = store
        self.hub = hub
        # None before the first read, which sends nothing.
        self.reader: ActReader | None = None

    async def tick(self) -> float:
        if not self.hub.wants_acts:
            self.reader = None
            return UNTIL_WOKEN
        if self.reader is None:
            reader = ActReader(self.store)
            await reader.start()
            self.reader = reader
            return self.every
        self.hub.send([make_event(act) for act in await self.reader.read()])
        return self.every


def make_event(act: AuditEntry) -> EncodedEvent:
    entry = make_act_entry(act)
    event = Event(
        entry.kind,
        to_datetime(entry.at),
        entry.scope,
        entry.queue,
        id=None if entry.id is None else str(entry.id),
        subject=entry.subject,
        verb=entry.verb,
        target=entry.target,
        detail=entry.detail,
        request_id=entry.request_id,
    )
    return EncodedEvent(event, act.tenant, act=act)
