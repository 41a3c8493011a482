"""Warns when a scope's dead letters grow."""

from collections import Counter

import structlog
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.model.queue import Scope
from penstock.runner import read_report, report
from penstock.store import Store

log: FilteringBoundLogger = structlog.get_logger()


def compute_growth(before: dict[str, int], sizes: dict[str, int]) -> dict[str, int]:
    """Returns the growth of each scope that grew."""
    deltas = {scope: size - before.get(scope, 0) for scope, size in sizes.items()}
    return {scope: delta for scope, delta in deltas.items() if delta > 0}


class DeadLetterMonitor:
    name = "dead_letter_monitor"
    every = 60.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by

    async def tick(self) -> float:
        """Compares with the counts stored by the last run, so that one node warns once."""
        scopes, sizes = await self._count_dead_letters()
        before = await self._read_last_counts()
        if sizes != before and await self.store.claim_tick(self.name, self.every, self.by):
            for key, delta in compute_growth(before, sizes).items():
                warn(scopes[key], sizes[key], delta)
            await self.store.end_tick(self.name, self.by, report(sizes))
        return self.every

    async def _count_dead_letters(self) -> tuple[dict[str, Scope], dict[str, int]]:
        """Returns the scopes with dead letters and their counts, by scope id."""
        scopes: dict[str, Scope] = {}
        sizes: Counter[str] = Counter()
        for queue_id, count in (await self.store.dead_counts()).items():
            scope = (await self.directory.get_by_id(queue_id)).scope
            scopes[str(scope.id)] = scope
            sizes[str(scope.id)] += count
        return scopes, {key: size for key, size in sizes.items() if size}

    async def _read_last_counts(self) -> dict[str, int]:
        for run in await self.store.agent_runs():
            if run.name == self.name and run.result:
                return read_report(run.result)
        return {}


def warn(scope: Scope, size: int, delta: int) -> None:
    log.warning(
        "dead_letters_growing", tenant=scope.tenant, scope=scope.name, size=size, delta=delta
    )
