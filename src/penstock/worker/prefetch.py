"""Decides how many messages to prefetch, and releases those that wait too long to start."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog

from penstock.worker.context import Context
from penstock.worker.executors.base import Executor
from penstock.worker.quarantine import Quarantine

log = structlog.get_logger()
# A message that waited this long for a slot is released, so that another worker can run it.
FIRST_PAUSE_S = 1.0
# If it comes back, no other worker wanted it, and it is released less often each time.
PAUSE_GROWTH = 4.0
MAX_PAUSE_S = 300.0
CHECK_INTERVAL_S = 0.25


class RunRate(NamedTuple):
    """The number of timed runs, their total duration, and the time with work to do."""

    runs: int
    run_seconds: float
    busy_seconds: float


class Prefetch:
    """Computes how many messages to claim beyond the free slots, from recent run times.

    It is 0 if runs are longer than the horizon; else about a horizon of work, but never more than
    twice as many as just ended.
    """

    def __init__(self, slots: int, horizon: float, most: int) -> None:
        self.slots = slots
        self.horizon = horizon
        self.most = most
        self.ahead = 0
        # Estimated run time in seconds. It rises at once, and falls by half at most.
        self.run_seconds = 0.0
        self.last = RunRate(0, 0.0, 0.0)

    def adapt(self, pace: RunRate) -> None:
        """Adapts after as many runs as there are slots, because these tend to end together."""
        runs = pace.runs - self.last.runs
        if runs < self.slots:
            return
        mean = (pace.run_seconds - self.last.run_seconds) / runs
        rate = runs / max(pace.busy_seconds - self.last.busy_seconds, 1e-6)
        self.last = pace
        self.run_seconds = max(mean, self.run_seconds / 2, 1e-6)
        if self.run_seconds > self.horizon:
            self.ahead = 0
            return
        # Handlers that block the loop cannot use all slots, so the measured rate is a bound too.
        work = int(min(rate, self.slots / self.run_seconds) * self.horizon)
        self.ahead = min(self.most, work, max(self.ahead, 2 * runs))

    def stop(self) -> None:
        """Assumes long runs, because prefetched messages did not start in time."""
        self.ahead = 0
        self.run_seconds = max(self.run_seconds, FIRST_PAUSE_S)


class Feeder(Protocol):
    """Claims messages for some executors."""

    lanes: Sequence[Executor]

    def stop_prefetch(self, crowded: Mapping[Executor, float]) -> None:
        """Claims for free slots only, after other workers had a chance to claim.

        `crowded` executors released messages. For this many seconds, only their slots count.
        """


class GrowingDelay:
    """A pause that grows while the same messages come back. It remembers the last ones."""

    def __init__(self) -> None:
        self.seconds = FIRST_PAUSE_S
        self.returned: frozenset[int] = frozenset()

    def note_released(self, contexts: Iterable[Context]) -> None:
        ids = frozenset(context.id for context in contexts)
        again = not ids.isdisjoint(self.returned)
        longer = min(MAX_PAUSE_S, self.seconds * PAUSE_GROWTH)
        self.seconds = longer if again else FIRST_PAUSE_S
        self.returned = ids


class SlotWatch:
    """Detects by counters alone that messages of an executor have waited too long."""

    def __init__(self, lane: Executor) -> None:
        self.lane = lane
        # How long messages of this executor are left to others after a release.
        self.pause = GrowingDelay()
        # How many messages the executor had accepted at `marked_at`.
        self.mark = 0
        self.marked_at = 0.0

    def take_overdue(self, now: float) -> list[Context]:
        """Takes all unstarted messages if some are overdue, so that their order is kept."""
        accepted = self.lane.load.accepted
        if accepted - self.lane.waiting >= self.mark:
            self.mark, self.marked_at = accepted, now
            return []
        if now - self.marked_at < FIRST_PAUSE_S:
            return []
        overdue = self.lane.take_back()
        self.mark = self.lane.load.accepted
        self.pause.note_released(overdue)
        return overdue


class UnstartedReleaser:
    """Releases messages that were claimed but did not start in time."""

    def __init__(self, suspects: Quarantine, release: Callable[[list[Context]], None]) -> None:
        self.suspects = suspects
        self.release = release
        # How long suspects may wait for their turn.
        self.pause = GrowingDelay()
        self.feeders: list[tuple[Feeder, list[SlotWatch]]] = []
        self.claimed = asyncio.Event()

    def watch(self, feeder: Feeder) -> None:
        self.feeders.append((feeder, [SlotWatch(lane) for lane in feeder.lanes]))

    async def step(self) -> None:
        """Checks for overdue messages while there are unstarted ones."""
        if not self.has_waiting():
            self.claimed.clear()
            await self.claimed.wait()
        await asyncio.sleep(CHECK_INTERVAL_S)
        now = asyncio.get_running_loop().time()
        for feeder, watches in self.feeders:
            taken = [(watch, watch.take_overdue(now)) for watch in watches]
            overdue = [context for _, contexts in taken for context in contexts]
            overdue += self.take_suspects(feeder.lanes, now)
            if overdue:
                log.info("unstarted_messages_released", count=len(overdue))
                feeder.stop_prefetch(
                    {watch.lane: watch.pause.seconds for watch, contexts in taken if contexts}
                )
                self.release(overdue)

    def has_waiting(self) -> bool:
        return bool(self.suspects.queue) or any(
            watch.lane.waiting for _, watches in self.feeders for watch in watches
        )

    def take_suspects(self, lanes: Sequence[Executor], now: float) -> list[Context]:
        overdue = self.suspects.take_overdue(lanes, now - self.pause.seconds)
        if overdue:
            self.pause.note_released(overdue)
        return overdue
