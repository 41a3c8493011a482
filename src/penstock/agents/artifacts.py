"""Removes the files of messages that left the store, and of deliveries that did not end theirs."""

from penstock.agents.report import report
from penstock.artifacts.rules import Owner, lost
from penstock.artifacts.verbs import Room
from penstock.errors import Archived
from penstock.message import Record
from penstock.store import Store

BATCH = 500
# Between two batches of one round.
PAUSE = 1.0
# An upload that nobody has finished for so long was cut off by a crash.
ABANDONED = 86_400.0


class ArtifactSweeper:
    name = "artifact_sweeper"
    every = 300.0

    def __init__(self, store: Store, room: Room, by: str) -> None:
        self.store = store
        self.room = room
        self.by = by
        # Where the round has come to.
        self.last: Owner | None = None

    async def tick(self) -> float:
        place = self.room.place
        uploads = await self.room.run(place.tidy, ABANDONED)
        owners = await self.room.run(place.owners, self.last, BATCH)
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
        self.last = owners[-1] if len(owners) == BATCH else None
        return self.every if self.last is None else PAUSE

    async def sweep(self, owner: Owner) -> bool:
        """Whether it had any."""
        # Before the message is looked at: what is put there later is not swept by an older look.
        shelves = await self.room.run(self.room.place.shelves, owner)
        doomed = lost(shelves, await self.found(owner), owner.tenant)
        for shelf in doomed:
            await self.room.run(self.room.place.clear, shelf)
        return bool(doomed)

    async def found(self, owner: Owner) -> Record | None:
        try:
            return await self.store.get(owner.id)
        except Archived:
            return None
