"""Runs bulk actions, each in one process at a time."""

import math
import time

from msgspec.structs import replace

from penstock.broker.bulk.steps import ACTIVE, BulkSteps, StoredAction
from penstock.broker.queue_cache import QueueCache
from penstock.model.bulk import BulkAction, BulkState
from penstock.rules.bulk import UNDERWAY
from penstock.runner import report
from penstock.store import Store

# The active actions of all tenants that one process looks at.
MAX_ACTIONS = 1_000
REPORT_INTERVAL_S = 5.0
# Between passes that find only locked messages.
BUSY_WAIT_S = 1.0


class BulkRunner:
    name = "bulk_runner"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.by = by
        self.steps = BulkSteps(store, directory)
        # Maps names to the time of the next batch and the action as this process left it.
        self.due: dict[str, float] = {}
        self.known: dict[str, StoredAction] = {}
        self.done = 0
        self.reported_at = 0.0
        self.listed_at = -math.inf

    async def tick(self) -> float:
        """Does one batch of every action that is due."""
        now = time.monotonic()
        # While it works on some, it looks for others now and then.
        if now >= self.listed_at + self.every or min(self.due.values(), default=math.inf) > now:
            await self.list_active()
        for name in self.due:
            await self.advance(name)
        await self.report()
        now = time.monotonic()
        next_at = min([self.listed_at + self.every, *self.due.values()])
        return min(self.every, max(0.0, next_at - now))

    async def list_active(self) -> None:
        self.listed_at = time.monotonic()
        names = [each.name for each in await self.store.documents(ACTIVE, limit=MAX_ACTIONS)]
        self.due = {name: self.due.get(name, 0.0) for name in names}
        self.known = {name: each for name, each in self.known.items() if name in self.due}
        self.steps.reader.keep_only(names)

    async def advance(self, name: str) -> float:
        """Does a batch if one is due. Returns the seconds until the next one."""
        began = time.monotonic()
        if self.due.get(name, began) <= began:
            self.due[name] = began + await self.do_batch(name)
        return max(0.0, self.due[name] - time.monotonic())

    async def do_batch(self, name: str) -> float:
        """Returns in how many seconds from its start the next batch is due."""
        stored = self.known.pop(name, None) or await self.steps.load(name)
        if stored is None or stored.action.state not in UNDERWAY:
            return self.every
        if await self.is_owned_by_another(stored.action):
            return self.every
        before = stored.action.counts.done
        after = await self.steps.step(stored, self.by)
        if after is None:
            # Another process has changed it; load it again at once.
            return 0.0
        done = after.action.counts.done - before
        self.done += done
        if after.action.state in UNDERWAY:
            self.known[name] = after
        return compute_interval(after.action, done)

    async def is_owned_by_another(self, action: BulkAction) -> bool:
        if action.owner in ("", self.by):
            return False
        return action.owned_until > await self.store.now()

    async def report(self) -> None:
        if not self.done or time.monotonic() < self.reported_at + REPORT_INTERVAL_S:
            return
        self.reported_at, done, self.done = time.monotonic(), self.done, 0
        if await self.store.claim_tick(self.name, self.every, self.by):
            await self.store.end_tick(self.name, self.by, report({"messages": done}))

    async def release(self, name: str) -> None:
        """Lets another process continue the action at once."""
        if (stored := self.known.pop(name, None)) is not None:
            action = replace(stored.action, owner="", owned_until=0)
            await self.steps.save(StoredAction(action, stored.version))


def compute_interval(action: BulkAction, done: int) -> float:
    """Returns the seconds between the starts of a batch and of the next one, by the rate."""
    if action.busy and not done:
        return BUSY_WAIT_S
    if action.request.rate is None or action.state is BulkState.COUNTING:
        return 0.0
    return done / action.request.rate
