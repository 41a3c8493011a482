"""Remembers that subscriptions are claimed from, so that live ones are not deleted."""

import time
from collections.abc import Iterable

from penstock.broker.queue_cache import QueueCache
from penstock.model.broadcast import BROADCAST_CLAIM
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND
from penstock.model.queue import Queue
from penstock.store import Store

# A claim is remembered this often at most, or ten times within the ttl.
INTERVAL_S = 60.0


class SubscriptionActivity:
    def __init__(self, store: Store, directory: QueueCache) -> None:
        self.store = store
        self.directory = directory
        self.next_at: dict[int, float] = {}

    async def note(self, queues: Iterable[Queue]) -> None:
        """Renews the documents of subscriptions with a ttl."""
        expiring = self.directory.policy.broadcasts.expiring
        for queue in queues:
            if queue.id in expiring and time.monotonic() >= self.next_at.get(queue.id, 0.0):
                name, ttl = expiring[queue.id]
                expires_at = await self.store.now() + int(ttl * MICROS_PER_SECOND)
                document = Document(
                    kind=BROADCAST_CLAIM, name=name, body=b"", expires_at=expires_at
                )
                await self.store.save_documents([document])
                self.next_at[queue.id] = time.monotonic() + min(INTERVAL_S, ttl / 10)
