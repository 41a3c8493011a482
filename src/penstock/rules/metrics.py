"""Folds history into metrics rows. Rows of several pages are added up in any order."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from penstock.model.heads import EarlierRow, FeedDigest, FeedHead, FirstRuns, HeadFeed
from penstock.model.message import HistoryRow, State, Verb
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
    ConsumerHour,
    QueueHour,
)
from penstock.rules.histograms import add_histogram, coarsen, make_histogram

MINUTE = MINUTE_S * 1_000_000
# Verbs that end a delivery after work on it, and those of them that failed.
WORKED = frozenset({Verb.COMPLETE, Verb.FAIL, Verb.NACK, Verb.REJECT, Verb.RECLAIM, Verb.CANCEL})
FAILED = frozenset({Verb.FAIL, Verb.NACK, Verb.REJECT, Verb.RECLAIM})
WAITING = frozenset({State.READY, State.SCHEDULED})
PUBLISHED, FLASH = COUNTS.index("published"), COUNTS.index("flash")
# Queue, type and minute.
Place = tuple[int, str, int]
# Verb, state, whether it was dead before, and whether a delivery ended.
Step = tuple[Verb, State, bool, bool]


FIRST_RUN_STEP: Step = (Verb.COMPLETE, State.COMPLETED, False, True)


class Deltas(Struct):
    """Counts that a page adds. Keys: queue, hour, type; queue, minute; hour, queue, consumer.

    Waits are coarse histograms by minute.
    """

    hours: dict[tuple[int, int, str], QueueHour] = field(default_factory=dict)
    minutes: dict[tuple[int, int, str], dict[int, list[int]]] = field(default_factory=dict)
    # Arrived, left and died.
    backlog: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    consumers: dict[tuple[int, int, str], ConsumerHour] = field(default_factory=dict)
    waits: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)


class Timing(Struct, frozen=True, gc=False):
    """A history row with what came before it. Times are microseconds."""

    row: HistoryRow
    head: FeedHead | None
    rests: Sequence[EarlierRow]
    last: EarlierRow | None
    wait: int | None
    run: int | None

    @property
    def was_dead(self) -> bool:
        return self.last is not None and self.last.state is State.DEAD


def time_rows(page: HeadFeed) -> list[Timing]:
    """Finds how long the messages waited and ran."""
    return [time_row(row, page) for row in page.history]


def time_row(row: HistoryRow, page: HeadFeed) -> Timing:
    """Finds how long the message waited and ran. A requested delay is not wait time."""
    head = page.heads.get(row.id)
    rests: Sequence[EarlierRow] = page.rests.get(row.id, ())
    last = None
    if rests:
        rests = [rest for rest in rests if rest.position < row.position]
        last = rests[-1] if rests else None
    claimed_at = row.claimed_at
    if claimed_at is None:
        return Timing(row, head, rests, last, None, None)
    ready_at = None
    if last is not None:
        ready_at = last.ready_at
    elif head is not None:
        ready_at = head.created_at if head.run_at is None else head.run_at
    wait = None if ready_at is None else max(0, claimed_at - ready_at)
    return Timing(row, head, rests, last, wait, max(0, row.at - claimed_at))


def fold_metrics(page: FeedDigest, timings: Sequence[Timing], flash: Mapping[int, int]) -> Deltas:
    """Counts a page; `timings` are those of its rest.

    `flash` has the microseconds below which a completed run of a queue is a flash.
    """
    deltas = Deltas()
    published = Counter([(queue, type_, at // MINUTE) for _, queue, type_, at in page.published])
    for place, count in published.items():
        find_minute(deltas, place)[PUBLISHED] += count
        add_backlog(deltas, place, count, 0, 0)
    for first_runs in page.groups:
        fold_first_runs(deltas, first_runs, flash)
    groups: defaultdict[tuple[int, str, int, str | None], list[Timing]] = defaultdict(list)
    for timing in timings:
        row, head = timing.row, timing.head
        type_ = "" if head is None else head.type
        groups[row.queue_id, type_, row.at // MINUTE, row.consumer].append(timing)
    for (queue_id, type_, minute, consumer), group in groups.items():
        fold_group(deltas, (queue_id, type_, minute), consumer, group, flash)
    sum_hours(deltas)
    return deltas


def fold_first_runs(deltas: Deltas, group: FirstRuns, flash: Mapping[int, int]) -> None:
    place, runs = (group.queue_id, group.type, group.minute), group.runs
    fold_times(deltas, place, runs, group.waits)
    find_minute(deltas, place)[FLASH] += bisect_left(runs, flash.get(group.queue_id, 0))
    if group.consumer is not None:
        worked = ConsumerHour(
            attempts=len(runs),
            completed=len(runs),
            busy=sum(runs),
            run_max=runs[-1],
            first_at=group.first_claimed_at,
            last_at=group.last_at,
        )
        put_consumer(deltas, place, group.consumer, worked)
    fold_step(deltas, place, FIRST_RUN_STEP, len(runs))


def fold_group(
    deltas: Deltas,
    place: Place,
    consumer: str | None,
    group: Sequence[Timing],
    flash: Mapping[int, int],
) -> None:
    worked = [each for each in group if each.run is not None and each.row.verb in WORKED]
    runs = sorted([each.run for each in worked if each.run is not None])
    waits = sorted([each.wait for each in worked if each.wait is not None])
    fold_times(deltas, place, runs, waits)
    if runs and runs[0] < flash.get(place[0], 0):
        find_minute(deltas, place)[FLASH] += count_flashes(worked, flash[place[0]])
    if consumer is not None and worked:
        fold_consumer(deltas, place, consumer, worked)
    for step, count in Counter(map(find_step, group)).items():
        fold_step(deltas, place, step, count)


def find_step(timing: Timing) -> Step:
    row = timing.row
    return row.verb, row.state, timing.was_dead, timing.run is not None and row.verb in WORKED


def find_minute(deltas: Deltas, place: Place) -> list[int]:
    queue_id, type_, minute = place
    hour = minute // 60
    key = (queue_id, hour * HOUR_S, type_)
    minutes = deltas.minutes.get(key)
    if minutes is None:
        minutes = deltas.minutes[key] = {}
        deltas.hours[key] = QueueHour([0] * len(COUNTS))
    numbers = minutes.get(minute % 60)
    if numbers is None:
        numbers = minutes[minute % 60] = [0] * MINUTE_WIDTH
    return numbers


def fold_times(deltas: Deltas, place: Place, runs: Sequence[int], waits: Sequence[int]) -> None:
    """Adds sorted durations."""
    numbers = find_minute(deltas, place)
    hour = deltas.hours[place[0], place[2] // 60 * HOUR_S, place[1]]
    if runs:
        numbers[RUN_SUM] += sum(runs)
        numbers[RUN_MAX] = max(numbers[RUN_MAX], runs[-1])
        hour.run_max = find_greater(hour.run_max, numbers[RUN_MAX])
        add_histogram(hour.run, make_histogram(runs))
    if waits:
        numbers[WAIT_SUM] += sum(waits)
        numbers[WAIT_MAX] = max(numbers[WAIT_MAX], waits[-1])
        hour.wait_max = find_greater(hour.wait_max, numbers[WAIT_MAX])
        counted = make_histogram(waits)
        add_histogram(hour.wait, counted)
        add_histogram(deltas.waits.setdefault((place[0], place[2]), {}), coarsen(counted))


def count_flashes(worked: Sequence[Timing], limit: int) -> int:
    return sum(
        [
            each.run is not None and each.run < limit and each.row.state is State.COMPLETED
            for each in worked
        ]
    )


def fold_consumer(deltas: Deltas, place: Place, consumer: str, worked: Sequence[Timing]) -> None:
    rows, runs = [each.row for each in worked], [each.run or 0 for each in worked]
    failed = [row for row in rows if row.verb in FAILED]
    found = ConsumerHour(
        attempts=len(rows),
        completed=sum([row.state is State.COMPLETED for row in rows]),
        failures=len(failed),
        lost=sum([row.verb is Verb.RECLAIM for row in failed]),
        busy=sum(runs),
        run_max=max(runs),
        first_at=min([row.claimed_at or row.at for row in rows]),
        last_at=max([row.at for row in rows]),
    )
    put_consumer(deltas, place, consumer, found)


def put_consumer(deltas: Deltas, place: Place, consumer: str, found: ConsumerHour) -> None:
    key = (place[2] // 60 * HOUR_S, place[0], consumer)
    if key in deltas.consumers:
        add_consumer(deltas.consumers[key], found)
    else:
        deltas.consumers[key] = found


def fold_step(deltas: Deltas, place: Place, step: Step, count: int) -> None:
    verb, state, was_dead, worked = step
    failed, returned, is_dead = worked and verb in FAILED, state in WAITING, state is State.DEAD
    happened = {
        "attempts": worked,
        "completed": worked and state is State.COMPLETED,
        "failures": failed,
        "retried": failed and returned,
        "lost": verb is Verb.RECLAIM,
        "failed": state is State.FAILED,
        "dead": is_dead and not was_dead,
        "expired": state is State.EXPIRED,
        "cancelled": state is State.CANCELLED,
        "redriven": verb is Verb.REDRIVE and returned,
        "handed_back": verb in (Verb.RELEASE, Verb.PARK),
    }
    numbers = find_minute(deltas, place)
    for name, is_true in happened.items():
        if is_true:
            numbers[COUNTS.index(name)] += count
    if state.final or is_dead or was_dead:
        arrived = was_dead and not is_dead and not state.final
        left = not was_dead and (state.final or is_dead)
        add_backlog(deltas, place, arrived * count, left * count, (is_dead - was_dead) * count)


def add_backlog(deltas: Deltas, place: Place, arrived: int, left: int, died: int) -> None:
    changes = deltas.backlog.setdefault((place[0], place[2]), [0, 0, 0])
    changes[0] += arrived
    changes[1] += left
    changes[2] += died


def sum_hours(deltas: Deltas) -> None:
    """Adds up the minutes of each hour."""
    for key, minutes in deltas.minutes.items():
        hour = deltas.hours[key]
        totals = [sum(column) for column in zip(*minutes.values(), strict=True)]
        hour.counts = totals[: len(COUNTS)]
        hour.wait_sum, hour.run_sum = totals[WAIT_SUM], totals[RUN_SUM]


def add_hour(total: QueueHour, other: QueueHour) -> None:
    total.counts = [a + b for a, b in zip(total.counts, other.counts, strict=True)]
    total.wait_sum += other.wait_sum
    total.run_sum += other.run_sum
    total.wait_max = find_greater(total.wait_max, other.wait_max)
    total.run_max = find_greater(total.run_max, other.run_max)
    add_histogram(total.wait, other.wait)
    add_histogram(total.run, other.run)


def find_greater(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def add_minutes(total: dict[int, list[int]], other: Mapping[int, Sequence[int]]) -> None:
    for minute, numbers in other.items():
        total[minute] = add_numbers(total[minute], numbers) if minute in total else list(numbers)


def add_numbers(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Adds counts and sums; the maxima are at the end."""
    return [
        *(a + b for a, b in zip(one[:WAIT_MAX], other[:WAIT_MAX], strict=True)),
        *(max(a, b) for a, b in zip(one[WAIT_MAX:], other[WAIT_MAX:], strict=True)),
    ]


def add_consumer(total: ConsumerHour, other: ConsumerHour) -> None:
    total.attempts += other.attempts
    total.completed += other.completed
    total.failures += other.failures
    total.lost += other.lost
    total.busy += other.busy
    total.run_max = max(total.run_max, other.run_max)
    total.first_at = min(total.first_at or other.first_at, other.first_at)
    total.last_at = max(total.last_at, other.last_at)


def add_changes(total: BacklogHour, changes: Sequence[int]) -> None:
    arrived, left, died = changes
    total.arrived += arrived
    total.left += left
    total.died += died
