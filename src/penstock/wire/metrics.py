"""Wire types of metrics, anomalies and alerts."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import asdict

from penstock.model.alerts import AlertStatus
from penstock.model.anomalies import Anomaly, AnomalyReport, AnomalyState, Severity
from penstock.model.metrics import ConsumerMetrics, ConsumerStats, MetricFigures, QueueMetrics
from penstock.model.structs import copy_fields
from penstock.wire.fields import Name, Time, Url, Word, to_datetime, to_moment, to_optional_datetime
from penstock.wire.rules import NewRule

Read = TypeVar("Read")
AlertName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Words = Annotated[tuple[Word, ...], Meta(max_length=100)]


class MetricPointView(MetricFigures, frozen=True, kw_only=True, omit_defaults=True):
    """One step that begins at `at`, with times in seconds.

    Hours have percentiles of wait and run time, minutes of the last hour of the wait only.
    `unfinished` and `dead_letters` are as the step ended. A provisional point may still change.
    """

    at: Time


class LiveDepthView(Struct, frozen=True, kw_only=True):
    """A sample of the queue now. `oldest_at` is when the next message to claim became ready."""

    ready: int
    scheduled: int
    claimed: int
    dead: int
    oldest_at: Time | None = None


class QueueMetricsView(Struct, frozen=True, kw_only=True):
    """Metrics of a queue. Points that end after `final_until` are provisional."""

    queue: str
    scope: str
    type: str | None
    step: int
    final_until: Time
    points: list[MetricPointView]
    live: LiveDepthView


class ConsumerStatsView(Struct, frozen=True, kw_only=True):
    """Counts of one consumer of one queue in whole hours. Times are in seconds."""

    consumer: str
    queue: str
    scope: str
    attempts: int
    completed: int
    failures: int
    lost: int
    busy: float
    run_max: float
    first_at: Time
    last_at: Time


class ConsumerMetricsView(Struct, frozen=True, kw_only=True):
    final_until: Time
    consumers: list[ConsumerStatsView]


class AnomalyView(Struct, frozen=True, kw_only=True):
    """An anomaly: its count, when it began, the worst case, and an example message."""

    id: str
    kind: str
    severity: Severity
    state: AnomalyState
    text: str
    scope: str
    queue: str
    type: str | None
    consumer: str | None
    count: int
    value: float | None
    threshold: float | None
    message_id: str | None
    hour: Time
    first_at: Time
    last_at: Time
    resolved_at: Time | None
    muted: bool
    note: str | None
    subject: str


class AnomaliesView(Struct, frozen=True, kw_only=True):
    """The newest first. The counts cover all selected anomalies. `complete` is false if the range
    has more than are read: then the oldest are missing."""

    anomalies: list[AnomalyView]
    by_kind: dict[str, int]
    by_severity: dict[str, int]
    complete: bool = True


class NewAlert(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends anomalies to a webhook. Empty lists select all; queues may be globs."""

    name: AlertName
    url: Url
    kinds: Words = ()
    severities: Annotated[tuple[Severity, ...], Meta(max_length=3)] = ()
    queues: Words = ()
    min_duration: Annotated[float, Meta(ge=0, le=604_800)] = 0.0
    cooldown: Annotated[float, Meta(ge=0, le=604_800)] = 300.0


class AlertView(Struct, frozen=True, kw_only=True):
    """An alert and its delivery. `error` is why the last attempt failed; it is sent again at
    `due_at`."""

    name: str
    scope: str
    url: str
    kinds: tuple[str, ...]
    severities: tuple[str, ...]
    queues: tuple[str, ...]
    min_duration: float
    cooldown: float
    created_at: Time
    # Open anomalies that were sent to the receiver.
    subjects: list[str] = []
    sent: int = 0
    attempts: int = 0
    last_sent_at: Time | None = None
    due_at: Time | None = None
    error: str | None = None


class AlertsView(Struct, frozen=True):
    alerts: list[AlertView]


class LakeJobView(Struct, frozen=True, omit_defaults=True):
    """A run of the pipeline or a backtest. `output` is the end of what it printed, and `result`
    the counts of a backtest."""

    kind: str
    state: Literal["running", "done", "failed"]
    started_by: str
    started_at: Time
    ended_at: Time | None = None
    output: str = ""
    result: Raw | None = None


class LakeView(Struct, frozen=True):
    """Says whether this server can run the pipeline, or why not, and lists its last jobs."""

    available: bool
    reason: str
    jobs: list[LakeJobView]


class NewBacktest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule to try on the messages of the lake."""

    rule: NewRule
    name: Name = "test"
    since: Annotated[str, Meta(max_length=20, description="How far back: 24h or 30d.")] = "30d"


class PipelineResults(Struct, frozen=True, omit_defaults=True):
    """Results that the pipeline wrote to the store, by name."""

    results: dict[str, Raw]
    cursor: str | None = None


def make_queue_metrics_view(found: QueueMetrics) -> QueueMetricsView:
    live = asdict(found.live) | {"oldest_at": to_optional_datetime(found.live.oldest_at)}
    return copy_fields(
        QueueMetricsView,
        found,
        final_until=to_datetime(found.final_until),
        points=[
            MetricPointView(**asdict(each) | {"at": to_datetime(each.at)}) for each in found.points
        ],
        live=LiveDepthView(**live),
    )


def read_view(view: Struct, wanted: type[Read]) -> Read:
    """Returns what a client's caller gets of a view: the type of the broker."""
    plain = to_moments(msgspec.to_builtins(view, builtin_types=(datetime,)))
    return msgspec.convert(plain, wanted, strict=False)


def make_consumers_view(found: ConsumerMetrics) -> ConsumerMetricsView:
    return ConsumerMetricsView(
        final_until=to_datetime(found.final_until),
        consumers=[make_consumer_view(each) for each in found.consumers],
    )


def make_consumer_view(stats: ConsumerStats) -> ConsumerStatsView:
    moments = {"first_at": to_datetime(stats.first_at), "last_at": to_datetime(stats.last_at)}
    return ConsumerStatsView(**asdict(stats) | moments)


def make_anomalies_view(report: AnomalyReport) -> AnomaliesView:
    return AnomaliesView(
        anomalies=[make_anomaly_view(each) for each in report.anomalies],
        by_kind=report.by_kind,
        by_severity=report.by_severity,
        complete=report.complete,
    )


def make_anomaly_view(anomaly: Anomaly) -> AnomalyView:
    known = {name: value for name, value in asdict(anomaly).items() if name != "tenant"}
    for name in ("hour", "first_at", "last_at", "resolved_at"):
        known[name] = to_optional_datetime(known[name])
    id = anomaly.message_id
    return AnomalyView(**known | {"message_id": None if id is None else str(id)})


def make_alert_view(status: AlertStatus) -> AlertView:
    alert, state = status.alert, status.state
    pending = state.pending
    return copy_fields(
        AlertView,
        alert,
        created_at=to_datetime(alert.created_at),
        subjects=list(state.reported),
        sent=state.sent,
        attempts=0 if pending is None else pending.attempts,
        last_sent_at=to_optional_datetime(state.last_sent_at),
        due_at=None if pending is None else to_datetime(pending.due_at),
        error=state.last_error,
    )


def to_moments(value: Any) -> Any:
    """Replaces every time of a view by the moment of the broker's type."""
    if isinstance(value, datetime):
        return to_moment(value)
    if isinstance(value, dict):
        return {name: to_moments(each) for name, each in value.items()}
    return [to_moments(each) for each in value] if isinstance(value, list) else value
