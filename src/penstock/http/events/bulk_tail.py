"""Follows bulk actions while there are listeners: their progress becomes events."""

from penstock.broker.bulk.reader import make_name
from penstock.broker.bulk.steps import ACTIVE, BulkSteps
from penstock.broker.queue_cache import QueueCache
from penstock.http.events.hub import (
    BULK_ENDED,
    BULK_PROGRESS,
    BULK_STARTED,
    EncodedEvent,
    Event,
    Hub,
)
from penstock.model.bulk import BulkAction, BulkState
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

MAX_ACTIONS = 1_000


class BulkTail:
    """Reports each action at most once a second, whichever process runs it."""

    name = "bulk_follower"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, hub: Hub) -> None:
        self.store = store
        self.steps = BulkSteps(store, directory)
        self.hub = hub
        self.reported: dict[str, tuple[BulkState, int]] | None = None

    async def tick(self) -> float:
        if not self.hub.wanted:
            self.reported = None
            return UNTIL_WOKEN
        names = [each.name for each in await self.store.documents(ACTIVE, limit=MAX_ACTIONS)]
        before = self.reported or {}
        # Actions that had started before the first read are not reported as started.
        new = set() if self.reported is None else set(names) - before.keys()
        self.reported = {}
        # An action that is no longer active is read one last time.
        for name in {**before, **dict.fromkeys(names)}:
            stored = await self.steps.load(name)
            if stored is not None:
                self.report(stored.action, before.get(name), is_new=name in new)
        return self.every

    def report(
        self, action: BulkAction, before: tuple[BulkState, int] | None, *, is_new: bool
    ) -> None:
        name, now = make_name(action.tenant, action.id), (action.state, action.counts.matched)
        if action.state.active and self.reported is not None:
            self.reported[name] = now
        if before == now:
            return
        kind = BULK_STARTED if is_new else BULK_PROGRESS
        self.hub.send([make_event(action, kind if action.state.active else BULK_ENDED)])


def make_event(action: BulkAction, kind: str) -> EncodedEvent:
    event = Event(
        kind,
        to_datetime(action.updated_at),
        action.scope,
        "",
        id=str(action.id),
        type=action.request.verb.value,
        state=action.state.value,
        reason=action.reason,
        count=action.counts.done,
    )
    return EncodedEvent(event, action.tenant)
