"""Reclaims messages whose lease expired."""

from collections import Counter

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.model.message import MICROS_PER_SECOND, Moment, Reclaim, State
from penstock.model.store_types import AnswerKind, Lease, Move, Sweep
from penstock.rules import lifecycle
from penstock.runner import report
from penstock.store import Store

BATCH_SIZE = 500
log: FilteringBoundLogger = structlog.get_logger()


class ReclaimWatch(Struct, frozen=True):
    """Since when leases were checked without a gap, and the last check."""

    since: Moment
    last_at: Moment


def advance_watch(watch: ReclaimWatch | None, now: Moment, every: float) -> ReclaimWatch:
    """Returns the watch after a check at `now`. A gap or a clock set back restarts it."""
    longest_gap = max(5.0, 2 * every) * MICROS_PER_SECOND
    if watch is None or not 0 <= now - watch.last_at <= longest_gap:
        return ReclaimWatch(now, now)
    return ReclaimWatch(watch.since, now)


def may_reclaim(lease: float, watch: ReclaimWatch) -> bool:
    """True if live consumers had a third of their lease to extend it after a gap."""
    return watch.last_at - watch.since >= lease / 3 * MICROS_PER_SECOND


class Reclaimer:
    name = "visibility_timeout_enforcer"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.watch: ReclaimWatch | None = None
        self.spared = 0

    async def tick(self) -> float:
        moves, _ = await self._find_moves()
        # Half of `every`: if the node that has the tick dies, the next one is not late.
        if not moves or not await self.store.claim_tick(self.name, self.every / 2, self.by):
            return self.every
        # Winning the tick may have taken time, and other nodes leave newly expired leases to us.
        moves, more = await self._find_moves()
        reclaimed = await self._reclaim(moves[:BATCH_SIZE]) if moves else 0
        return 0 if more and reclaimed else self.every

    async def _find_moves(self) -> tuple[list[Move], bool]:
        """Returns the moves, and whether there is more than one batch."""
        # Leases that were spared are found again, so the limit must reach beyond them.
        limit = BATCH_SIZE + self.spared
        sweep = await self.store.expired_leases(limit)
        self.watch = advance_watch(self.watch, sweep.now, self.every)
        moves = await self._plan_moves(sweep, self.watch)
        self.spared = len(sweep.leases) - len(moves)
        return moves, len(sweep.leases) == limit or len(moves) > BATCH_SIZE

    async def _plan_moves(self, sweep: Sweep, watch: ReclaimWatch) -> list[Move]:
        decisions = [await self._decide(lease, watch) for lease in sweep.leases]
        return [move for move in decisions if move is not None]

    async def _decide(self, lease: Lease, watch: ReclaimWatch) -> Move | None:
        settings = (await self.directory.get_by_id(lease.queue_id)).settings
        if may_reclaim(lease.length, watch):
            return lifecycle.settle(lease, Reclaim(), settings)
        return None

    async def _reclaim(self, moves: list[Move]) -> int:
        """Settles the moves, logs them, and returns how many applied."""
        answers = await self.store.settle(moves)
        states: Counter[State] = Counter(
            move.state
            for move, answer in zip(moves, answers, strict=True)
            if answer.kind is AnswerKind.DONE
        )
        if states:
            counts = {state.value: count for state, count in states.items()}
            log.info("leases_reclaimed", **counts)
            await self.store.end_tick(self.name, self.by, report(counts))
        return states.total()
