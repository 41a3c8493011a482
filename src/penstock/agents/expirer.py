"""Expires messages whose TTL or deadline has passed."""

from penstock.broker.queue_cache import QueueCache
from penstock.runner import report
from penstock.store import Store

BATCH_SIZE = 1_000


class Expirer:
    name = "expiry_enforcer"
    every = 60.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.by = by

    async def tick(self) -> float:
        expired = await self.store.expire(BATCH_SIZE)
        # The node that has the tick continues with a long backlog; the others wait.
        if not expired or not await self.store.claim_tick(self.name, self.every, self.by):
            return self.every
        await self.store.end_tick(self.name, self.by, report({"expired": expired}))
        return 0 if expired >= BATCH_SIZE else self.every
