"""Figures of one queue in buckets of five seconds, for the last five minutes."""

from collections import Counter, deque
from collections.abc import Callable

from msgspec import Struct

from penstock.model.message import HistoryRow, Moment, State, Verb
from penstock.rules.fingerprints import make_template

BUCKET_S = 5
BUCKET_MICROS: Moment = BUCKET_S * 1_000_000
BUCKETS = 60
# Rates are means over this many complete buckets.
RATE_BUCKETS = 6
MAX_DEATHS = 200
FAILED_VERBS = frozenset({Verb.NACK, Verb.FAIL, Verb.REJECT, Verb.RECLAIM})


def find_bucket(moment: Moment) -> int:
    return moment // BUCKET_MICROS


class Sample(Struct, frozen=True):
    """A queue as it was counted. `since` is when the oldest claimable message became ready."""

    ready: int
    claimed: int
    since: Moment | None


class QueueSeries:
    """Counts of one queue by bucket. Empty buckets have no entry."""

    def __init__(self, begun: int) -> None:
        # The first bucket whose published messages are known; earlier ones cannot be.
        self.begun = begun
        self.published: Counter[int] = Counter()
        self.completed: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.samples: dict[int, Sample] = {}
        self.deaths: deque[tuple[int, str]] = deque(maxlen=MAX_DEATHS)
        self.died_at: Moment | None = None
        # The last bucket in which an unfinished message had an ordering key.
        self.keyed_in: int | None = None
        # Ended messages that were counted, and when those ended that were not.
        self.ended = 0
        self.pending: list[Moment] = []
        # Unfinished and ended messages at the last count, and when that was.
        self.total: int | None = None
        self.counted_at: Moment = 0

    def add(self, row: HistoryRow) -> None:
        bucket = find_bucket(row.at)
        if row.state is State.COMPLETED:
            self.completed[bucket] += 1
        elif row.verb in FAILED_VERBS:
            self.failed[bucket] += 1
        if row.state is State.DEAD:
            self.deaths.append((bucket, make_template(row.error or "")))
            self.died_at = row.at
        if row.final:
            self.pending.append(row.at)

    def count(self, unfinished: int, at: Moment) -> None:
        """Derives what was published from the counts: no row is written for it."""
        left = [moment for moment in self.pending if moment > at]
        self.ended += len(self.pending) - len(left)
        self.pending = left
        total = unfinished + self.ended
        if self.total is None:
            self.total = total
        elif total > self.total:
            self.spread_published(total - self.total, self.counted_at, at)
            self.total = total
        self.counted_at = at

    def spread_published(self, number: int, since: Moment, until: Moment) -> None:
        """Adds messages to the buckets between two counts: a busy server may count seldom."""
        given = 0
        for bucket in range(max(self.begun, find_bucket(since)), find_bucket(until) + 1):
            end = min(until, (bucket + 1) * BUCKET_MICROS)
            reached = round(number * (end - since) / max(1, until - since))
            self.published[bucket] += reached - given
            given = reached

    def fill_gaps(self, counted: int, bucket: int) -> None:
        """Fills the buckets between two counts: a busy server may count more than 5 s apart."""
        sample = self.samples.get(counted)
        if sample is not None:
            for between in range(counted + 1, bucket):
                self.samples[between] = sample

    def forget_before(self, bucket: int) -> None:
        for counted in (self.published, self.completed, self.failed, self.samples):
            for old in [each for each in counted if each < bucket]:
                del counted[old]

    def list_published(self, last: int) -> list[int | None]:
        """Returns the buckets up to `last`; None for those before counting began."""
        return [self.published[each] if each >= self.begun else None for each in list_buckets(last)]

    def compute_rate(self, counted: Counter[int], last: int) -> float:
        """Returns a mean per second. The last bucket is not over yet."""
        known = [each for each in range(last - RATE_BUCKETS, last) if each > self.begun]
        if not known:
            return counted[last] / BUCKET_S
        return sum(counted[each] for each in known) / (len(known) * BUCKET_S)

    def count_ends(self, last: int) -> int:
        """Returns how many runs ended in the window."""
        return sum(
            count
            for counted in (self.completed, self.failed)
            for bucket, count in counted.items()
            if last - BUCKETS < bucket <= last
        )

    def is_keyed(self, last: int) -> bool:
        """True if a message of the window had an ordering key."""
        return self.keyed_in is not None and self.keyed_in > last - BUCKETS

    def find_deaths(self, last: int) -> tuple[int, str | None]:
        """Returns how many messages died in the window, and the most common error."""
        found = [template for bucket, template in self.deaths if bucket > last - BUCKETS]
        common = Counter(filter(None, found)).most_common(1)
        return len(found), common[0][0] if common else None


def list_buckets(last: int) -> range:
    return range(last - BUCKETS + 1, last + 1)


def sum_series(
    all_series: list[QueueSeries], last: int, pick: Callable[[QueueSeries], Counter[int]]
) -> list[int]:
    total: Counter[int] = Counter()
    for series in all_series:
        total.update(pick(series))
    return [total[each] for each in list_buckets(last)]
