"""Deletes artifacts of pruned messages, and of deliveries that did not end their message."""

from penstock.artifacts.rules import MessagePrefix, find_orphans
from penstock.artifacts.service import ArtifactService
from penstock.errors import Archived
from penstock.model.message import Record
from penstock.runner import report
from penstock.store import Store

BATCH_SIZE = 500
# The pause between two batches of one pass.
BATCH_PAUSE_S = 1.0
# An upload that is unfinished for this long was interrupted by a crash.
ABANDONED_AFTER_S = 86_400.0


class ArtifactPruner:
    name = "artifact_pruner"
    every = 300.0

    def __init__(self, store: Store, service: ArtifactService, by: str) -> None:
        self.store = store
        self.service = service
        self.by = by
        # The last message of the current pass.
        self.last: MessagePrefix | None = None

    async def tick(self) -> float:
        place = self.service.storage
        uploads = await self.service.run(place.tidy, ABANDONED_AFTER_S)
        owners = await self.service.run(place.owners, self.last, BATCH_SIZE)
        # Checking them is the expensive part, so only one node does it.
        if not owners or not await self.store.claim_tick(self.name, self.every, self.by):
            self.last = None
            return self.every
        messages = 0
        for owner in owners:
            messages += await self.sweep(owner)
        await self.store.end_tick(
            self.name, self.by, report({"messages": messages, "uploads": uploads})
        )
        self.last = owners[-1] if len(owners) == BATCH_SIZE else None
        return self.every if self.last is None else BATCH_PAUSE_S

    async def sweep(self, owner: MessagePrefix) -> bool:
        """Deletes the orphaned artifacts of a message. Returns True if it had any."""
        # Listed before the message is read, so that later uploads are not deleted.
        delivery_folders = await self.service.run(self.service.storage.delivery_folders, owner)
        doomed = find_orphans(delivery_folders, await self.find_record(owner), owner.tenant)
        for delivery_folder in doomed:
            await self.service.run(self.service.storage.clear, delivery_folder)
        return bool(doomed)

    async def find_record(self, owner: MessagePrefix) -> Record | None:
        try:
            return await self.store.get(owner.id)
        except Archived:
            return None
