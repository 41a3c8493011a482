"""Metrics of queues and consumers: the rows that are stored, and what is read of them."""

from msgspec import Struct

from penstock.model.message import Moment

COUNTS = (
    "published", "attempts", "completed", "failures", "retried", "lost", "failed", "dead",
    "expired", "cancelled", "redriven", "handed_back", "flash",
)  # fmt: skip
# A minute has the counts, then the sums and maxima of waiting and running in microseconds.
WAIT_SUM, RUN_SUM, WAIT_MAX, RUN_MAX = range(len(COUNTS), len(COUNTS) + 4)
MINUTE_WIDTH = len(COUNTS) + 4
MINUTE_S, HOUR_S = 60, 3_600
# Types of a queue beyond the limit, and consumers beyond theirs, are counted under this name.
OTHER = "other"


class QueueHour(Struct):
    """Counts of one message type of one queue in one hour. Times are microseconds."""

    counts: list[int]
    wait_sum: int = 0
    run_sum: int = 0
    wait_max: int | None = None
    run_max: int | None = None
    wait: dict[int, int] = {}
    run: dict[int, int] = {}


class ConsumerHour(Struct):
    """Counts of one consumer of one queue in one hour. Times are microseconds."""

    attempts: int = 0
    completed: int = 0
    failures: int = 0
    lost: int = 0
    busy: int = 0
    run_max: int = 0
    first_at: Moment = 0
    last_at: Moment = 0


class BacklogHour(Struct):
    """Unfinished and dead messages when the hour began, and the changes in it."""

    unfinished: int = 0
    dead: int = 0
    arrived: int = 0
    left: int = 0
    died: int = 0


class MetricFigures(Struct, frozen=True, kw_only=True):
    """The figures of one step, with times in seconds.

    Hours have percentiles of wait and run time, minutes of the last hour of the wait only.
    `unfinished` and `dead_letters` are as the step ended. A provisional point may still change.
    """

    provisional: bool = False
    published: int = 0
    attempts: int = 0
    completed: int = 0
    failures: int = 0
    retried: int = 0
    lost: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    cancelled: int = 0
    redriven: int = 0
    handed_back: int = 0
    flash: int = 0
    wait_mean: float | None = None
    wait_max: float | None = None
    wait_p50: float | None = None
    wait_p95: float | None = None
    wait_p99: float | None = None
    run_mean: float | None = None
    run_max: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None
    run_p99: float | None = None
    unfinished: int | None = None
    dead_letters: int | None = None


class MetricPoint(MetricFigures, frozen=True, kw_only=True):
    """The figures of the step that begins at `at`."""

    at: Moment


class LiveDepth(Struct, frozen=True, kw_only=True):
    """A sample of the queue now: messages by place, and since when the next one waits."""

    ready: int = 0
    scheduled: int = 0
    claimed: int = 0
    dead: int = 0
    oldest_at: Moment | None = None


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of a queue. Points that end after `final_until` are provisional."""

    queue: str
    scope: str
    type: str | None
    step: int
    final_until: Moment
    points: list[MetricPoint]
    live: LiveDepth


class ConsumerStats(Struct, frozen=True, kw_only=True):
    """Counts of one consumer of one queue in the range. Times are in seconds."""

    consumer: str
    queue: str
    scope: str
    attempts: int = 0
    completed: int = 0
    failures: int = 0
    lost: int = 0
    busy: float = 0.0
    run_max: float = 0.0
    first_at: Moment = 0
    last_at: Moment = 0


class ConsumerMetrics(Struct, frozen=True, kw_only=True):
    final_until: Moment
    consumers: list[ConsumerStats]
