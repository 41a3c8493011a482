"""Follows bulk actions while there are listeners: their progress becomes events."""

from msgspec.structs import replace

from penstock.broker.bulk.actions import COUNTER
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
from penstock.model.bulk import BulkAction, BulkCounts, BulkState
from penstock.runner import UNTIL_WOKEN
from penstock.store import Store
from penstock.wire.fields import to_datetime

MAX_ACTIONS = 1_000
# Actions of one tenant that are reported as started in one look.
MAX_STARTED = 100


class BulkTail:
    """Reports each action at most once a second, whichever process runs it."""

    name = "bulk_follower"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, hub: Hub) -> None:
        self.store = store
        self.steps = BulkSteps(store, directory)
        self.hub = hub
        # The active actions as they were reported. None before the first read.
        self.reported: dict[str, tuple[BulkState, int]] | None = None
        # The number of the last action of each tenant.
        self.numbers: dict[str, int] = {}

    async def tick(self) -> float:
        if not self.hub.wanted:
            self.reported = None
            return UNTIL_WOKEN
        started = await self.find_started()
        if self.reported is None:
            # These had started before the first read, and are not reported as started.
            self.reported, started = {}, []
            known = [each.name for each in await self.store.documents(ACTIVE, limit=MAX_ACTIONS)]
        else:
            known = list(self.reported)
        before, self.reported = self.reported, {}
        for name in dict.fromkeys([*known, *started]):
            stored = await self.steps.load(name)
            if stored is not None:
                is_new = name in started and name not in before
                self.report(stored.action, before.get(name), is_new=is_new)
        return self.every

    async def find_started(self) -> list[str]:
        """Returns the actions since the last call. Those that are over by now count, too."""
        found = await self.store.documents(COUNTER, limit=MAX_ACTIONS)
        numbers = {each.name: int(each.body) for each in found}
        before, self.numbers = self.numbers, numbers
        names = [
            make_name(tenant, id)
            for tenant, last in numbers.items()
            for id in range(max(before.get(tenant, 0), last - MAX_STARTED) + 1, last + 1)
        ]
        return names[-MAX_ACTIONS:]

    def report(
        self, action: BulkAction, before: tuple[BulkState, int] | None, *, is_new: bool
    ) -> None:
        name, now = make_name(action.tenant, action.id), (action.state, action.counts.matched)
        if action.state.active and self.reported is not None:
            self.reported[name] = now
        if before == now:
            return
        events = [make_event(make_started(action), BULK_STARTED)] if is_new else []
        if not action.state.active:
            events.append(make_event(action, BULK_ENDED))
        elif not is_new or action.counts.matched:
            events.append(make_event(action, BULK_PROGRESS))
        self.hub.send(events)


def make_started(action: BulkAction) -> BulkAction:
    """Returns the action as it was when it started."""
    state = BulkState.COUNTING if action.request.dry_run else BulkState.RUNNING
    return replace(
        action, state=state, reason=None, counts=BulkCounts(), updated_at=action.created_at
    )


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
