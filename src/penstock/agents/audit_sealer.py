"""Seals new audit entries into the hash chain."""

from penstock.broker.audit import AuditLog
from penstock.broker.queue_cache import QueueCache
from penstock.runner import report
from penstock.store import Store

MAX_PAGES = 10


class AuditSealer:
    name = "audit_sealer"
    every = 2.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.log = AuditLog(store)
        self.by = by

    async def tick(self) -> float:
        """Seals up to ten pages. Other processes may seal at the same time: one wins a page."""
        sealed = 0
        for _ in range(MAX_PAGES):
            count = await self.log.seal()
            sealed += count
            if count == 0:
                break
        if sealed and await self.store.claim_tick(self.name, self.every, self.by):
            await self.log.prune()
            await self.store.end_tick(self.name, self.by, report({"sealed": sealed}))
        return self.every
