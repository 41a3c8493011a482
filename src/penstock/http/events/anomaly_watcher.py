"""Sends anomalies that open or are resolved to event streams."""

from penstock.broker.anomalies import read_open
from penstock.broker.queue_cache import QueueCache
from penstock.http.auth.principal import OWNER
from penstock.http.events.hub import EncodedEvent, Event, Hub
from penstock.model.anomalies import Anomaly
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

OPENED, RESOLVED = "anomaly.opened", "anomaly.resolved"


class AnomalyWatcher:
    """Reads the open anomalies while there are listeners."""

    name = "anomaly_watcher"
    every = 2.0

    def __init__(self, store: Store, directory: QueueCache, hub: Hub) -> None:
        self.store = store
        self.directory = directory
        self.hub = hub
        # Maps subjects to anomalies. None before the first read, which sends nothing.
        self.known: dict[str, Anomaly] | None = None

    async def tick(self) -> float:
        if not self.hub.listeners:
            self.known = None
            return UNTIL_WOKEN
        found = await read_open(self.store, self.directory)
        seen = {each.subject: each for each in found if not each.muted}
        if self.known is not None:
            new = [each for subject, each in seen.items() if subject not in self.known]
            gone = [each for subject, each in self.known.items() if subject not in seen]
            self.hub.send([make_event(OPENED, each, each.last_at) for each in new])
            now = await self.store.now() if gone else 0
            self.hub.send([make_event(RESOLVED, each, now) for each in gone])
        self.known = seen
        return self.every


def make_event(kind: str, anomaly: Anomaly, at: int) -> EncodedEvent:
    """`reason` is the kind of the anomaly and `id` the message of its worst case."""
    event = Event(
        kind=kind,
        at=to_datetime(at),
        scope=anomaly.scope,
        queue=anomaly.queue,
        id=None if anomaly.message_id is None else str(anomaly.message_id),
        type=anomaly.type,
        state=anomaly.severity,
        consumer=anomaly.consumer,
        reason=anomaly.kind,
    )
    return EncodedEvent(event, anomaly.tenant or OWNER)
