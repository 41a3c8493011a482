"""An operator who cancels and redrives what is in everybody's hands."""

from penstock.model.message import Record, State
from tests.faults.storm.part import CorePart, tolerate
from tests.faults.storm.scene import SHARED_QUEUES

WAITING = (State.READY, State.SCHEDULED, State.CLAIMED)


class Meddler(CorePart):
    async def work(self) -> None:
        while not self.stopping.is_set():
            with tolerate():
                await self.meddle()
            await self.pause(self.random.uniform(0.05, 0.3))

    async def meddle(self) -> None:
        queue = self.random.choice(SHARED_QUEUES)
        state = self.random.choice((*WAITING, State.DEAD, State.DEAD, None))
        records = await self.witness.broker.admin.find(queue, state=state, limit=30)
        if records:
            await self.treat(self.random.choice(records))

    async def treat(self, record: Record) -> None:
        """By the time it is treated it may be in another state: then it is refused."""
        if record.state in WAITING:
            force = self.random.random() < 0.3
            await self.witness.cancel(record.message.id, force=force)
        else:
            await self.witness.redrive(record.message.id)
