"""Promotes due messages, resumes waiting ones, and fires cron schedules."""

from datetime import UTC, datetime
from hashlib import blake2b

import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.governance import Governed, govern
from penstock.broker.queue_cache import QueueCache
from penstock.errors import CannotGovern, InvalidInput, NotFound
from penstock.model.message import MICROS_PER_SECOND, Draft, Moment
from penstock.model.queue import Queue, QueueState, Schedule
from penstock.model.store_types import Dedupe, Entry, Firing
from penstock.rules import cron, drafts
from penstock.runner import report
from penstock.store import Store

PROMOTE_BATCH = 1_000
FIRE_BATCH = 100
MIN_WAIT_S = 0.001
MIN_WAIT_MICROS = 1_000
# A scheduler that was suspended this long must still not fire a tick twice.
TICK_DEDUP_WINDOW_S = 7 * 86_400.0
# How often a busy scheduler records what it did.
REPORT_INTERVAL_MICROS = 10 * MICROS_PER_SECOND
# How often messages are searched that wait for others and missed their end.
SEARCH_INTERVAL_MICROS = 30 * MICROS_PER_SECOND
log: FilteringBoundLogger = structlog.get_logger()


def accepts_ticks(queue: Queue) -> bool:
    """True if the queue is active or paused, not draining, archived or deleted."""
    return queue.state in (QueueState.ACTIVE, QueueState.PAUSED) and not queue.scope.archived


def stamp_draft(draft: Draft, tick: Moment) -> Draft:
    """Returns the draft of one tick, with a name that is unique per tick."""
    time = datetime.fromtimestamp(tick / MICROS_PER_SECOND, UTC).isoformat()
    name = None if draft.name is None else f"{draft.name}@{time}"
    headers = {**(draft.headers or {}), "penstock-tick": time}
    return replace(draft, name=name, headers=headers, dedup=None)


def make_tick_entry(
    schedule: Schedule, queue: Queue, tick: Moment, governed: Draft | Entry
) -> Entry:
    """Makes the entry of one tick, with a dedup key so that it is published once.

    A refusal would go unnoticed, so a tick for a full queue becomes a dead letter, and one of a
    broadcast queue goes to the subscriptions that this process knows.
    """
    entry = governed if isinstance(governed, Entry) else drafts.make_entry(governed, queue)
    if entry.unit is not None:
        entry = replace(entry, unit=replace(entry.unit, expects=()))
    digest = blake2b(entry.body, digest_size=16).digest()
    key = Dedupe(f"cron:{schedule.id}:{tick}", digest, TICK_DEDUP_WINDOW_S)
    return replace(entry, dedup=key, overflow="dead")


def wait_until(moments: list[Moment], now: Moment, longest: float) -> float:
    """Returns the seconds until the first moment: 0 if it has passed, else at least MIN_WAIT_S."""
    left = (min(moments) - now) / MICROS_PER_SECOND if moments else longest
    return 0.0 if left <= 0 else min(max(left, MIN_WAIT_S), longest)


class Scheduler:
    name = "scheduler"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.counts = {"promoted": 0, "fired": 0, "resumed": 0}
        self.reported_at: Moment = 0
        self.searched_at: Moment = 0
        self.search_from = 0

    async def tick(self) -> float:
        looked = await self.store.resume_held()
        await self._search_missed(looked.now)
        promoted = await self.store.promote(PROMOTE_BATCH)
        moments = await self._fire(promoted.now)
        self.counts["promoted"] += promoted.count
        self.counts["resumed"] += looked.resumed
        await self._report(promoted.now)
        if promoted.count >= PROMOTE_BATCH or looked.more:
            return 0
        if promoted.next_at is not None:
            # A held message that is due may be locked: another process looks at it.
            moments.append(max(promoted.next_at, promoted.now + MIN_WAIT_MICROS))
        if looked.next_at is not None:
            moments.append(max(looked.next_at, promoted.now + MIN_WAIT_MICROS))
        return wait_until(moments, promoted.now, self.every)

    async def _report(self, now: Moment) -> None:
        """Records the work done since the last report, in one write every few seconds."""
        if not any(self.counts.values()) or now - self.reported_at < REPORT_INTERVAL_MICROS:
            return
        self.reported_at = now
        if await self.store.claim_tick(self.name, self.every, self.by):
            await self.store.end_tick(self.name, self.by, report(self.counts))
        self.counts = dict.fromkeys(self.counts, 0)

    async def _fire(self, now: Moment) -> list[Moment]:
        """Fires due schedules, and returns when schedules fire next."""
        horizon = now + int(self.every * MICROS_PER_SECOND)
        schedules = [each for each in await self.store.schedules(due_by=horizon) if not each.paused]
        due = [each for each in schedules if each.next_at <= now]
        firings = [await self._plan_firing(each, now) for each in due[:FIRE_BATCH]]
        fired = [firing for firing in firings if firing is not None]
        if fired:
            self.counts["fired"] += sum(await self.store.fire(fired))
        later = [each.next_at for each in schedules if each.next_at > now]
        return later + [each.next_at for each in due[FIRE_BATCH:]] + [f.next_at for f in fired]

    async def _plan_firing(self, schedule: Schedule, now: Moment) -> Firing | None:
        try:
            queue = await self.directory.get_by_id(schedule.queue_id)
            ticks, next_at = cron.find_due_ticks(schedule, now)
        except (InvalidInput, NotFound) as error:
            # One invalid schedule must not stop the others.
            log.error("schedule_invalid", schedule=schedule.name, error=str(error))
            return None
        if not accepts_ticks(queue):
            log.warning(
                "ticks_skipped",
                schedule=schedule.name,
                queue=queue.name,
                state=queue.state.value,
                count=len(ticks),
            )
            ticks = []
        entries = self._make_entries(schedule, queue, ticks)
        return None if entries is None else Firing(schedule.id, schedule.next_at, next_at, entries)

    def _make_entries(
        self, schedule: Schedule, queue: Queue, ticks: list[Moment]
    ) -> tuple[Entry, ...] | None:
        """Returns the entries of ticks, or None to leave them to a process that can govern."""
        stamped = [stamp_draft(schedule.draft, tick) for tick in ticks]
        governed: list[Governed] = list(stamped)
        if queue.governed:
            governed = govern(stamped, queue, self.directory.policy)
        entries = []
        for tick, outcome in zip(ticks, governed, strict=True):
            if isinstance(outcome, Draft | Entry):
                entries.append(make_tick_entry(schedule, queue, tick, outcome))
                continue
            log.error("tick_refused", schedule=schedule.name, queue=queue.name, error=str(outcome))
            if isinstance(outcome, CannotGovern):
                return None
        return tuple(entries)

    async def _search_missed(self, now: Moment) -> None:
        """Looks at one batch of messages that wait for others."""
        if not self.search_from and now - self.searched_at < SEARCH_INTERVAL_MICROS:
            return
        self.searched_at = now
        self.search_from = await self.store.nudge_missed(self.search_from) or 0
