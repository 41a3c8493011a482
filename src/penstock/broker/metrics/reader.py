"""Reads the points of one queue: its stored rows, and those that are not counted yet."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.broker.metrics.rows import (
    BACKLOG_HOUR,
    BACKLOG_MINUTES,
    KEPT_S,
    QUEUE_HOUR,
    QUEUE_MINUTES,
    WAIT_MINUTE,
    QueueTotals,
    name_backlog_hour,
    read_rows,
)
from penstock.errors import InvalidInput
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.metrics import (
    COUNTS,
    HOUR_S,
    MINUTE_S,
    MINUTE_WIDTH,
    RUN_MAX,
    RUN_SUM,
    WAIT_MAX,
    WAIT_SUM,
    BacklogHour,
    MetricPoint,
    QueueHour,
)
from penstock.model.queue import Queue
from penstock.rules.histograms import PERCENTILES, add_histogram, compute_percentiles
from penstock.rules.metrics import Deltas, add_numbers, find_greater
from penstock.store import Store

DEFAULT_RANGE_S = 3_600
MAX_POINTS = 2_000
MAX_ROWS = 50_000
MINUTES_KEPT_S = KEPT_S[QUEUE_MINUTES]


class TimeRange(Struct, frozen=True):
    """Steps in seconds, from `begin` to before `end`."""

    begin: int
    end: int
    step: int

    @property
    def begins(self) -> range:
        return range(self.begin, self.end, self.step)

    def find(self, second: int) -> int | None:
        """Returns the number of the step, or None outside of the range."""
        return (second - self.begin) // self.step if self.begin <= second < self.end else None


def make_range(since: Moment | None, until: Moment | None, step: float, now: Moment) -> TimeRange:
    if step != int(step) or step < MINUTE_S or int(step) % MINUTE_S:
        raise InvalidInput(f"step is {step:g} s; it must be a number of whole minutes")
    if step >= HOUR_S and int(step) % HOUR_S:
        raise InvalidInput(f"step is {step:g} s; above an hour it must be whole hours")
    seconds, last = int(step), (now if until is None else min(until, now)) // MICROS_PER_SECOND
    first = last - DEFAULT_RANGE_S if since is None else since // MICROS_PER_SECOND
    if first > last:
        raise InvalidInput("since must be before until and not in the future")
    begin, end = first - first % seconds, last - last % seconds + seconds
    if (end - begin) // seconds > MAX_POINTS:
        raise InvalidInput(f"the range has more than {MAX_POINTS} steps; choose a longer step")
    if seconds < HOUR_S and begin < now // MICROS_PER_SECOND - MINUTES_KEPT_S:
        raise InvalidInput("minutes are kept for 48 hours; choose a step of 1h for older times")
    return TimeRange(begin, end, seconds)


class Step:
    """The sums of one point."""

    def __init__(self) -> None:
        self.numbers: Sequence[int] = [0] * MINUTE_WIDTH
        self.wait: dict[int, int] = {}
        self.run: dict[int, int] = {}

    def add(self, other: "Step") -> None:
        self.numbers = add_numbers(self.numbers, other.numbers)
        add_histogram(self.wait, other.wait)

    def add_hour(self, row: QueueHour) -> None:
        highest = find_greater(row.wait_max, 0) or 0, find_greater(row.run_max, 0) or 0
        numbers = [*row.counts, row.wait_sum, row.run_sum, *highest]
        self.numbers = add_numbers(self.numbers, numbers)
        add_histogram(self.wait, row.wait)
        add_histogram(self.run, row.run)


class QueuePointReader:
    """Reads one queue's points in a range."""

    def __init__(self, store: Store, queue: Queue, span: TimeRange, type: str | None) -> None:
        self.store = store
        self.queue = queue
        self.span = span
        self.type = type
        self.steps = [Step() for _ in span.begins]

    async def read(
        self, pending: Deltas, totals: QueueTotals, final_until: Moment
    ) -> list[MetricPoint]:
        if self.span.step < HOUR_S:
            await self.add_minutes(pending)
        else:
            await self.add_hours(pending)
        backlog = await self.read_backlog(pending, totals)
        return [
            make_point(begin, self.span.step, step, depths, final_until)
            for begin, step, depths in zip(self.span.begins, self.steps, backlog, strict=True)
        ]

    async def list_rows(self, kind: str) -> list[tuple[int, str, Any]]:
        """Returns hour, type and row."""
        hour = self.span.begin - self.span.begin % HOUR_S
        first = name_backlog_hour(self.queue.id, hour)[:-1]
        last = name_backlog_hour(self.queue.id, self.span.end)
        found = await read_rows(self.store, kind, first, last, MAX_ROWS)
        parts = [(f"{name}/".split("/", 3), row) for name, row in found]
        rows = [(int(part[1]), part[2], row) for part, row in parts]
        return [each for each in rows if each[0] >= hour]

    def is_wanted(self, queue_id: int, type_: str) -> bool:
        return queue_id == self.queue.id and self.type in (None, type_)

    async def add_minutes(self, pending: Deltas) -> None:
        rows = await self.list_rows(QUEUE_MINUTES)
        rows += [(hour, t, each) for (id, hour, t), each in pending.minutes.items()
                 if id == self.queue.id]  # fmt: skip
        for hour, type_, minutes in rows:
            if not self.is_wanted(self.queue.id, type_):
                continue
            for minute, numbers in minutes.items():
                place = self.span.find(hour + minute * MINUTE_S)
                if place is not None:
                    step = self.steps[place]
                    step.numbers = add_numbers(step.numbers, numbers)
        if self.type is None:
            await self.add_waits(pending)

    async def add_waits(self, pending: Deltas) -> None:
        """Adds the histograms of the last hour's minutes. They are not kept by type."""
        rows = [(minute, row) for minute, _, row in await self.list_rows(WAIT_MINUTE)]
        rows += [(minute * MINUTE_S, each) for (id, minute), each in pending.waits.items()
                 if id == self.queue.id]  # fmt: skip
        for second, waits in rows:
            place = self.span.find(second)
            if place is not None:
                add_histogram(self.steps[place].wait, waits)

    async def add_hours(self, pending: Deltas) -> None:
        rows = await self.list_rows(QUEUE_HOUR)
        rows += [(hour, t, each) for (id, hour, t), each in pending.hours.items()
                 if id == self.queue.id]  # fmt: skip
        for hour, type_, row in rows:
            place = self.span.find(hour)
            if place is not None and self.is_wanted(self.queue.id, type_):
                self.steps[place].add_hour(row)

    async def read_backlog(self, pending: Deltas, totals: QueueTotals) -> list[tuple[int, int]]:
        """Returns unfinished and dead messages at the end of each step."""
        hours: dict[int, BacklogHour] = {
            hour: row for hour, _, row in await self.list_rows(BACKLOG_HOUR)
        }
        changes = await self.read_changes(hours, pending)
        unfinished, dead = await self.find_base(hours, totals)
        found = []
        left_over = sorted(each for each in changes if each >= self.span.begin)[::-1]
        for begin in self.span.begins:
            while left_over and left_over[-1] < begin + self.span.step:
                arrived, left, died = changes[left_over.pop()]
                unfinished += arrived - left
                dead += died
            found.append((unfinished, dead))
        return found

    async def read_changes(
        self, hours: Mapping[int, BacklogHour], pending: Deltas
    ) -> dict[int, list[int]]:
        """Returns the changes by the second at which their minute or hour begins."""
        found: dict[int, list[int]] = {}
        if self.span.step < HOUR_S:
            for hour, _, minutes in await self.list_rows(BACKLOG_MINUTES):
                found |= {hour + 60 * minute: list(each) for minute, each in minutes.items()}
        else:
            found = {hour: [row.arrived, row.left, row.died] for hour, row in hours.items()}
        for (queue_id, minute), each in pending.backlog.items():
            if queue_id == self.queue.id:
                known = found.setdefault(minute * MINUTE_S, [0, 0, 0])
                known[:] = [a + b for a, b in zip(known, each, strict=True)]
        return found

    async def find_base(
        self, hours: Mapping[int, BacklogHour], totals: QueueTotals
    ) -> tuple[int, int]:
        """Finds the numbers before the range: those with which its first or the next row begins."""
        if hours:
            row = hours[min(hours)]
        else:
            first = name_backlog_hour(self.queue.id, self.span.end)[:-1]
            last = f"{self.queue.id:010d}/~"
            rows = await read_rows(self.store, BACKLOG_HOUR, first, last, 1)
            row = rows[0][1] if rows else BacklogHour(totals.unfinished, totals.dead)
        before = [0, 0]
        if hours and min(hours) < self.span.begin:
            for hour, _, minutes in await self.list_rows(BACKLOG_MINUTES):
                for minute, (arrived, left, died) in minutes.items():
                    if hour + 60 * minute < self.span.begin:
                        before[0] += arrived - left
                        before[1] += died
        return row.unfinished + before[0], row.dead + before[1]


def make_point(
    begin: int, length: int, step: Step, depths: tuple[int, int], final_until: Moment
) -> MetricPoint:
    numbers = step.numbers
    counts = dict(zip(COUNTS, numbers, strict=False))
    attempts = counts["attempts"]
    times: dict[str, float | None] = {}
    if attempts:
        times = {
            "wait_mean": numbers[WAIT_SUM] / attempts / MICROS_PER_SECOND,
            "run_mean": numbers[RUN_SUM] / attempts / MICROS_PER_SECOND,
            "wait_max": numbers[WAIT_MAX] / MICROS_PER_SECOND,
            "run_max": numbers[RUN_MAX] / MICROS_PER_SECOND,
        }
    for name, histogram in (("wait", step.wait), ("run", step.run)):
        if histogram:
            values = compute_percentiles(histogram)
            times |= {f"{name}_p{p}": v for p, v in zip(PERCENTILES, values, strict=True)}
    described = {
        "at": begin * MICROS_PER_SECOND,
        "provisional": (begin + length) * MICROS_PER_SECOND > final_until,
        "unfinished": depths[0],
        "dead_letters": depths[1],
    }
    return msgspec.convert({**described, **counts, **times}, MetricPoint)
