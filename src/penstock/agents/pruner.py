"""Deletes finished messages whose retention has passed."""

from collections import defaultdict
from collections.abc import Iterable

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.model.queue import Queue
from penstock.model.store_types import Retention
from penstock.runner import report
from penstock.store import Store

BATCH_SIZE = 1_000
DAY_S = 86_400.0
EXPORT_HOLD_S = 30 * DAY_S
log: FilteringBoundLogger = structlog.get_logger()


class RetentionGroup(Struct, frozen=True):
    """Queues with the same retention."""

    retention: float
    queue_ids: tuple[int, ...]


def group_by_retention(queues: Iterable[Queue]) -> list[RetentionGroup]:
    groups: defaultdict[float, list[int]] = defaultdict(list)
    for queue in queues:
        groups[queue.settings.retention].append(queue.id)
    return [
        RetentionGroup(retention, tuple(sorted(ids))) for retention, ids in sorted(groups.items())
    ]


class Pruner:
    name = "message_archiver"
    every = 300.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        # Where each pass starts. A group with a new queue is another key, and starts at 0.
        self.positions: dict[RetentionGroup, int] = {}

    async def tick(self) -> float:
        await self._warn()
        if (await self.store.resume_held()).more:
            # After an outage: an end is noted by those that wait for it before it is pruned.
            return 0.0
        pruned, more = await self._prune()
        expired = await self._expire_dead_letters()
        keys = await self.store.sweep_keys(BATCH_SIZE)
        wait = 0.0 if more or BATCH_SIZE in (expired, min(keys, BATCH_SIZE)) else self.every
        if not pruned and not expired and not keys:
            return wait
        # The node that has the tick continues with a long backlog; the others wait.
        if not await self.store.claim_tick(self.name, self.every, self.by):
            return self.every
        await self.store.end_tick(
            self.name, self.by, report({"messages": pruned + expired, "keys": keys})
        )
        return wait

    async def _warn(self) -> None:
        """Warns about stalled exports, which delay pruning for up to a month."""
        now = await self.store.now()
        for name, exported in (await self.store.cursors()).items():
            age = (now - exported.advanced_at) / 1_000_000
            if age > EXPORT_HOLD_S:
                log.error("export_hold_expired", export=name, days=int(age / DAY_S))
            elif age > DAY_S:
                log.warning("export_behind", export=name, hours=int(age / 3_600))

    async def _expire_dead_letters(self) -> int:
        """Ends old dead letters where a queue sets `dead_retention`, at most one batch."""
        limited = [
            (queue, queue.settings.dead_retention)
            for queue in await self.directory.list_queues()
            if queue.settings.dead_retention is not None
        ]
        if not limited:
            return 0
        now, count = await self.store.now(), 0
        for queue, kept in limited:
            before = now - int(kept * 1_000_000)
            count += await self.store.expire_dead(queue.id, before, BATCH_SIZE - count)
            if count == BATCH_SIZE:
                break
        return count

    async def _prune(self) -> tuple[int, bool]:
        """Prunes one batch per group. Returns the count, and whether there is more."""
        groups = group_by_retention(await self.directory.list_queues())
        self.positions = {keep: self.positions.get(keep, 0) for keep in groups}
        now = await self.store.now()
        count, more = 0, False
        for keep in groups:
            before = now - int(keep.retention * 1_000_000)
            retention = Retention(keep.queue_ids, before, self.positions[keep], BATCH_SIZE)
            pruned = await self.store.prune(retention)
            self.positions[keep] = pruned.position
            count += pruned.count
            more = more or pruned.more
        return count, more
