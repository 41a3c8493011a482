"""Removes the files of messages that left the store, and of deliveries that did not end theirs."""

from penstock.agents.report import report
from penstock.artifacts.rules import MessagePrefix, find_orphans
from penstock.broker.artifacts import ArtifactRoom
from penstock.errors import Archived
from penstock.model.message import Record
from penstock.store import Store

BATCH_SIZE = 500
# Between two batches of one round.
BATCH_PAUSE_S = 1.0
# An upload that nobody has finished for so long was cut off by a crash.
ABANDONED_AFTER_S = 86_400.0


class ArtifactPruner:
    name = "artifact_sweeper"
    every = 300.0

    def __init__(self, store: Store, room: ArtifactRoom, by: str) -> None:
        self.store = store
        self.room = room
        self.by = by
        # Where the round has come to.
        self.last: MessagePrefix | None = None

    async def tick(self) -> float:
        place = self.room.place
        uploads = await self.room.run(place.tidy, ABANDONED_AFTER_S)
        owners = await self.room.run(place.owners, self.last, BATCH_SIZE)
        # To look at them is the work: one node does it.
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
        """Whether it had any."""
        # Before the message is looked at: what is put there later is not swept by an older look.
        shelves = await self.room.run(self.room.place.shelves, owner)
        doomed = find_orphans(shelves, await self.find_record(owner), owner.tenant)
        for shelf in doomed:
            await self.room.run(self.room.place.clear, shelf)
        return bool(doomed)

    async def find_record(self, owner: MessagePrefix) -> Record | None:
        try:
            return await self.store.get(owner.id)
        except Archived:
            return None
