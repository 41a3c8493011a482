"""Raises the priority of messages that have waited long, so that none starves."""

from penstock.broker.queue_cache import QueueCache
from penstock.model.queue import Queue, QueueState
from penstock.runner import report
from penstock.store import Store

BATCH_SIZE = 1_000


def is_aging(queue: Queue) -> bool:
    """True if the queue ages. Only priorities can: other ranks are times."""
    settings, deleted = queue.settings, queue.state is QueueState.DELETED
    return settings.aging and settings.ordering == "priority" and not deleted


class PriorityAger:
    name = "priority_aging_worker"
    every = 300.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by

    async def tick(self) -> float:
        queues = [queue for queue in await self.directory.list_queues() if is_aging(queue)]
        if not queues:
            return self.every
        if (left := await self._seconds_left()) > 0:
            return left
        if await self.store.claim_tick(self.name, self.every, self.by):
            moved = [await self.store.age(queue.id, self.every, BATCH_SIZE) for queue in queues]
            await self.store.end_tick(self.name, self.by, report({"moved": sum(moved)}))
        return self.every

    async def _seconds_left(self) -> float:
        """Returns the seconds until the next tick is due on any node."""
        now = await self.store.now()
        for run in await self.store.agent_runs():
            if run.name == self.name:
                left = self.every - (now - run.at) / 1_000_000
                # A run in the future means that the clock was set back.
                return 0.0 if left > 2 * self.every else min(self.every, left)
        return 0.0
