"""Computes the ticks of cron schedules, and which missed ticks to make up for."""

from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from penstock.errors import InvalidInput
from penstock.model.fields import MAX_WORD_LENGTH
from penstock.model.message import Moment
from penstock.model.queue import Missed, Schedule
from penstock.rules.validation import check_text, clip

# A tick that is found within this time is late, not missed.
PUNCTUAL_MICROS = 60_000_000
# How many ticks of each schedule are listed.
LISTED_TICKS = 5
# Bounds the ticks that one run of the scheduler fires after a long outage.
MAX_TICKS = 1_000


def find_next_tick(cron: str, timezone: str, after: Moment) -> Moment:
    """Returns the first tick strictly after `after`."""
    check_text("cron", cron, MAX_WORD_LENGTH)
    start = datetime.fromtimestamp(after / 1_000_000, UTC).astimezone(load_zone(timezone))
    try:
        # When clocks go back, CronSim finds the tick of the repeated hour twice.
        return next(tick for tick in map(to_moment, CronSim(cron, start)) if tick > after)
    except CronSimError as error:
        raise InvalidInput(f"cron {clip(cron)}: {error}") from None
    except StopIteration:
        raise InvalidInput(f"cron {clip(cron)} never fires") from None


@lru_cache(maxsize=4_096)
def list_ticks(cron: str, timezone: str, first: Moment) -> tuple[Moment, ...]:
    """Returns the tick `first` and those after it."""
    start = datetime.fromtimestamp(first / 1_000_000, UTC).astimezone(load_zone(timezone))
    # Twice as many: in a repeated hour each tick is found twice.
    later = islice(map(to_moment, CronSim(cron, start)), 2 * LISTED_TICKS)
    return tuple(sorted({first, *(tick for tick in later if tick > first)})[:LISTED_TICKS])


def find_due_ticks(schedule: Schedule, now: Moment) -> tuple[list[Moment], Moment]:
    """Returns the ticks to fire now, by the schedule's `missed` policy, and the next tick."""
    ticks: list[Moment] = []
    tick = schedule.next_at
    while tick <= now and len(ticks) < MAX_TICKS:
        ticks.append(tick)
        tick = find_next_tick(schedule.cron, schedule.timezone, tick)
    if schedule.missed is Missed.ALL:
        return ticks, tick
    if tick <= now:
        ticks = [find_latest_tick(schedule, now)]
        tick = find_next_tick(schedule.cron, schedule.timezone, now)
    if schedule.missed is Missed.SKIP:
        ticks = [each for each in ticks if now - each <= PUNCTUAL_MICROS]
    return ticks[-1:], tick


def find_latest_tick(schedule: Schedule, now: Moment) -> Moment:
    """Returns the last tick at or before `now`."""
    start = datetime.fromtimestamp(now // 1_000_000 + 1, UTC)
    backwards = CronSim(schedule.cron, start.astimezone(load_zone(schedule.timezone)), reverse=True)
    return to_moment(next(backwards))


def to_moment(tick: datetime) -> Moment:
    return int(tick.timestamp()) * 1_000_000


def load_zone(name: str) -> ZoneInfo:
    check_text("timezone", name, MAX_WORD_LENGTH)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(f"no timezone named {clip(name)}") from None
