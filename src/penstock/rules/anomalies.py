"""Detectors: finds anomalies in history rows and in metrics rows, without I/O."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from penstock.model.anomalies import SEVERITIES, AnomalyRow, AnomalySettings, AnomalyThresholds
from penstock.model.heads import DigestBounds
from penstock.model.message import MICROS_PER_SECOND, Moment, State, Verb
from penstock.model.metrics import COUNTS, HOUR_S, ConsumerHour, QueueHour
from penstock.model.queue import Queue
from penstock.rules.fingerprints import make_fingerprint
from penstock.rules.histograms import compute_quantile
from penstock.rules.metrics import FAILED, WAITING, Timing

BURST = "burst_dequeue"
# Deleted or moved messages of a queue in an hour.
MIN_BULK_MESSAGES = 10
# An anomaly is resolved when nothing of its kind has happened for this long, in seconds.
RESOLVE_AFTER_S = 600
MIN_UNCLAIMED_S = 60.0
# Kinds that need a number of cases in an hour, which is their threshold.
COUNTED = frozenset({"lost_lease", "near_dlq", "dlq_movement", "bulk_delete", "bulk_move"})
ATTEMPTS, RETRIED, FLASH = (COUNTS.index(name) for name in ("attempts", "retried", "flash"))
# Hour, kind, queue, type and consumer.
AnomalyKey = tuple[int, str, int, str, str]
# Claims of one consumer in one hour by second, with the first and the last moment.
Seconds = dict[int, list[int]]


class QueueRules(Struct, frozen=True):
    """The settings of a queue that detectors use. A deleted queue has no limits."""

    thresholds: AnomalyThresholds
    settings: AnomalySettings
    max_attempts: int | None = None
    counts_deliveries: bool = False
    lease: float | None = None
    # The tenant and name of its scope.
    scope: str = ""

    def allows(self, kind: str) -> bool:
        return self.settings.allows(kind)


def make_queue_rules(queue: Queue | None) -> QueueRules:
    if queue is None:
        settings = AnomalySettings()
        return QueueRules(settings.make_thresholds(), settings)
    settings = queue.settings.anomalies
    return QueueRules(
        settings.make_thresholds(),
        settings,
        queue.settings.max_attempts,
        queue.settings.retry.count == "deliveries",
        queue.settings.lease,
        name_scope(queue),
    )


def name_scope(queue: Queue) -> str:
    return f"{queue.scope.tenant}/{queue.scope.name}"


class AnomalyMatch(Struct, frozen=True):
    kind: str
    value: float | None
    threshold: float | None


def get_patience(queue: Queue) -> Moment:
    """Returns how long a queue may be without work before it counts as unserved: two leases."""
    return int(max(MIN_UNCLAIMED_S, 2 * queue.settings.lease) * MICROS_PER_SECOND)


def make_bounds(rules: Mapping[int, QueueRules]) -> DigestBounds:
    """Returns within what no completed first run of these queues is an anomaly."""
    # Deleted queues have the default thresholds.
    known = [*rules.values(), make_queue_rules(None)]
    return DigestBounds(
        run=int(min(find_longest_run(each) for each in known)),
        size=int(min(each.thresholds.payload_over for each in known)),
        whole=tuple(sorted(id for id, each in rules.items() if each.allows(BURST))),
    )


def find_longest_run(rules: QueueRules) -> float:
    """Returns the microseconds up to which a completed run cannot be an anomaly."""
    lease = rules.thresholds.slow_over if rules.lease is None else rules.lease
    return min(rules.thresholds.slow_over, lease) * MICROS_PER_SECOND


def judge(timing: Timing, rules: QueueRules) -> Iterator[AnomalyMatch]:
    """Finds the anomalies of one row, also of kinds that are off."""
    row, head, limits = timing.row, timing.head, rules.thresholds
    if timing.run is not None:
        lease = rules.lease if head is None or head.lease is None else head.lease
        yield from judge_run(timing.run / MICROS_PER_SECOND, lease, row.verb, rules)
    first = row.deliveries <= 1 and timing.last is None
    if first and head is not None and head.size > limits.payload_over:
        yield AnomalyMatch("large_payload", head.size, limits.payload_over)
    if row.state is State.DEAD and not timing.was_dead:
        yield AnomalyMatch("dlq_movement", row.attempts, limits.dead_least)
    if row.verb is Verb.PARK:
        yield AnomalyMatch("unknown_task", None, None)
    if row.state is State.CANCELLED and row.reason == "purged":
        yield AnomalyMatch("bulk_delete", None, MIN_BULK_MESSAGES)
    if row.state is State.CANCELLED and row.reason == "moved":
        yield AnomalyMatch("bulk_move", None, MIN_BULK_MESSAGES)
    if row.verb in FAILED and row.error is not None:
        yield from judge_failure(timing, rules)


def judge_run(
    run: float, lease: float | None, verb: Verb, rules: QueueRules
) -> Iterator[AnomalyMatch]:
    limits = rules.thresholds
    if run > limits.slow_over:
        yield AnomalyMatch("long_processing", run, limits.slow_over)
    if verb is Verb.RECLAIM:
        yield AnomalyMatch("lost_lease", run, limits.lost_least)
    if lease is not None and run - lease > lease * limits.overdue_leases:
        yield AnomalyMatch("zombie_message", run - lease, limits.overdue_leases)


def judge_failure(timing: Timing, rules: QueueRules) -> Iterator[AnomalyMatch]:
    row, limits = timing.row, rules.thresholds
    if row.state in WAITING and count_attempts_left(timing, rules) == 1:
        yield AnomalyMatch("near_dlq", row.attempts, limits.last_chance_least)
    if len(timing.rests) + 1 < limits.poison_attempts:
        return
    mark = make_fingerprint(row.error or "")
    alike = [
        rest.consumer
        for rest in timing.rests
        if rest.verb in FAILED and rest.error is not None and make_fingerprint(rest.error) == mark
    ]
    consumers = len({*alike, row.consumer})
    if len(alike) + 1 >= limits.poison_attempts and consumers >= limits.poison_consumers:
        yield AnomalyMatch("poison_message", len(alike) + 1, limits.poison_attempts)


def count_attempts_left(timing: Timing, rules: QueueRules) -> int | None:
    row, head = timing.row, timing.head
    own = None if head is None else head.max_attempts
    limit = rules.max_attempts if own is None else own
    used = row.deliveries if rules.counts_deliveries else row.attempts
    return None if limit is None else limit - used


def find_in_rows(
    timings: Sequence[Timing], rules: Mapping[int, QueueRules]
) -> dict[AnomalyKey, AnomalyRow]:
    """Finds the anomalies of single messages. Each row counts them and names the worst."""
    found: dict[AnomalyKey, AnomalyRow] = {}
    for timing in timings:
        row, head = timing.row, timing.head
        known = rules[row.queue_id]
        type_ = "" if head is None else head.type
        for each in judge(timing, known):
            if known.allows(each.kind):
                key = (get_hour(row.at), each.kind, row.queue_id, type_, "")
                case = make_row(key, each.value, each.threshold, row.at)
                case.message_id, case.position = row.id, row.position
                add_case(found, key, case)
    return found


def make_row(
    key: AnomalyKey, value: float | None, threshold: float | None, at: Moment, count: int = 1
) -> AnomalyRow:
    hour, kind, queue_id, type_, consumer = key
    return AnomalyRow(
        kind=kind, severity=SEVERITIES[kind], hour=hour, queue_id=queue_id, type=type_,
        consumer=consumer, count=count, value=value, threshold=threshold, first_at=at, last_at=at,
    )  # fmt: skip


def add_case(found: dict[AnomalyKey, AnomalyRow], key: AnomalyKey, case: AnomalyRow) -> None:
    if key in found:
        add_anomaly(found[key], case)
    else:
        found[key] = case


def add_anomaly(total: AnomalyRow, other: AnomalyRow) -> None:
    """Adds cases. The worst has the largest value; of equal ones, the first in history."""
    if is_worse(other, total):
        total.value, total.message_id, total.position = (
            other.value, other.message_id, other.position,
        )  # fmt: skip
    total.count += other.count
    total.threshold = other.threshold
    total.first_at = min(total.first_at, other.first_at)
    total.last_at = max(total.last_at, other.last_at)
    total.note = other.note or total.note


def is_worse(one: AnomalyRow, other: AnomalyRow) -> bool:
    if one.value is None or other.value is None:
        return other.message_id is None
    return (one.value, -one.position) > (other.value, -other.position)


def get_hour(moment: Moment) -> int:
    seconds = moment // MICROS_PER_SECOND
    return seconds - seconds % HOUR_S


def find_in_hour(
    key: tuple[int, int, str], row: QueueHour, rules: QueueRules, at: Moment
) -> dict[AnomalyKey, AnomalyRow | None]:
    """Judges an hour of a queue and type. A kind that holds no longer is None."""
    queue_id, hour, type_ = key
    limits, found = rules.thresholds, dict[AnomalyKey, AnomalyRow | None]()
    if rules.allows("flash_message") and row.counts[FLASH]:
        name = (hour, "flash_message", queue_id, type_, "")
        median = compute_quantile(sorted(row.run.items()), 50)
        found[name] = make_row(name, median, limits.flash_under, at, row.counts[FLASH])
    attempts, retried = row.counts[ATTEMPTS], row.counts[RETRIED]
    if rules.allows("retry_storm") and retried >= limits.storm_retries:
        name, share = (hour, "retry_storm", queue_id, type_, ""), retried / attempts
        storm = make_row(name, share, limits.storm_share, at, retried)
        found[name] = storm if share >= limits.storm_share else None
    return found


def find_stuck(
    key: tuple[int, int, str], row: ConsumerHour, rules: QueueRules
) -> dict[AnomalyKey, AnomalyRow | None]:
    """Finds a consumer that loses its leases and completes nothing."""
    hour, queue_id, consumer = key
    if not rules.allows("stuck_consumer") or row.lost < rules.thresholds.stuck_leases:
        return {}
    name = (hour, "stuck_consumer", queue_id, "", consumer)
    if row.completed:
        return {name: None}
    found = make_row(name, row.lost, rules.thresholds.stuck_leases, row.last_at, row.lost)
    found.first_at = row.first_at
    return {name: found}


def count_claims(
    timings: Sequence[Timing], rules: Mapping[int, QueueRules]
) -> dict[tuple[int, int, str], Seconds]:
    """Counts claims by hour, queue and consumer, where bursts are looked for."""
    found: dict[tuple[int, int, str], Seconds] = {}
    watched = {id for id, each in rules.items() if each.allows(BURST)}
    for each in timings if watched else ():
        row = each.row
        if row.claimed_at is None or row.consumer is None:
            continue
        if row.queue_id in watched:
            key = (get_hour(row.claimed_at), row.queue_id, row.consumer)
            second = row.claimed_at // MICROS_PER_SECOND % HOUR_S
            add_seconds(found.setdefault(key, {}), {second: [1, row.claimed_at, row.claimed_at]})
    return found


def add_seconds(total: Seconds, other: Mapping[int, Sequence[int]]) -> None:
    for second, (count, first, last) in other.items():
        if second in total:
            known = total[second]
            total[second] = [known[0] + count, min(known[1], first), max(known[2], last)]
        else:
            total[second] = [count, first, last]


def find_burst(
    key: tuple[int, int, str], seconds: Seconds, rules: QueueRules
) -> dict[AnomalyKey, AnomalyRow | None]:
    """Finds consecutive seconds in which one consumer claimed many messages."""
    hour, queue_id, consumer = key
    within, most = rules.thresholds.burst_within, rules.thresholds.burst_claims
    crowded: list[tuple[int, list[int]]] = []
    for second, numbers in seconds.items():
        near = sum(seconds[n][0] for n in range(second - within + 1, second + 1) if n in seconds)
        if near >= most:
            crowded.append((near, numbers))
    if not crowded:
        return {}
    name, worst = (hour, BURST, queue_id, "", consumer), max(each[0] for each in crowded)
    row = make_row(name, worst, most, max(numbers[2] for _, numbers in crowded), worst)
    row.first_at = min(numbers[1] for _, numbers in crowded)
    return {name: row}


def count_batches(
    published: Sequence[tuple[int, int, str, Moment]], rules: Mapping[int, QueueRules]
) -> Counter[tuple[int, Moment]]:
    """Counts messages of a queue that were published at the same moment."""
    watched = {id for id, each in rules.items() if each.allows("bulk_enqueue")}
    if not watched:
        return Counter()
    return Counter((queue_id, at) for _, queue_id, _, at in published if queue_id in watched)


def find_bulk(
    queue_id: int, at: Moment, before: int, count: int, rules: QueueRules
) -> AnomalyRow | None:
    """Judges a batch of which `before` messages were counted in earlier pages."""
    most = rules.thresholds.bulk_messages
    if before + count < most:
        return None
    name = (get_hour(at), "bulk_enqueue", queue_id, "", "")
    new = count if before >= most else before + count
    return make_row(name, before + count, most, at, new)


def is_reported(row: AnomalyRow) -> bool:
    """True if there were as many cases as the kind needs."""
    return row.kind not in COUNTED or row.count >= (row.threshold or 1)
