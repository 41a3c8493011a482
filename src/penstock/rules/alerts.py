"""Decides when an alert is sent, what it says, and when it is sent again."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.model.alerts import Alert, AlertState, NoticeType
from penstock.model.anomalies import Anomaly
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.retry_policies import compute_webhook_delay
from penstock.rules.anomaly_text import SENTENCES
from penstock.rules.globs import match_glob

# Anomalies that one notice describes; the rest is counted.
MAX_DESCRIBED = 20
MAX_SUBJECTS = 1_000


def is_selected(alert: Alert, kind: str, severity: str, queue: str) -> bool:
    return (
        (not alert.kinds or kind in alert.kinds)
        and (not alert.severities or severity in alert.severities)
        and (not alert.queues or any(match_glob(each, queue) for each in alert.queues))
    )


def note_opened(
    alert: Alert, state: AlertState, first_seen: Mapping[str, Moment]
) -> dict[str, Moment]:
    """Returns since when each subject is open: its row in a new hour begins anew."""
    if alert.min_duration == 0:
        return {}
    since = {name: min(at, state.opened.get(name, at)) for name, at in first_seen.items()}
    return dict(sorted(since.items(), key=lambda each: (each[1], each[0]))[:MAX_SUBJECTS])


def find_new(
    alert: Alert, state: AlertState, first_seen: Mapping[str, Moment], now: Moment
) -> list[str]:
    """Returns the subjects to report. Within the cool-down there are none."""
    last = state.last_fired_at
    if last is not None and now - last < alert.cooldown * MICROS_PER_SECOND:
        return []
    return [
        subject
        for subject, at in first_seen.items()
        if subject not in state.reported
        and now - state.opened.get(subject, at) >= alert.min_duration * MICROS_PER_SECOND
    ][:MAX_SUBJECTS]


def find_resolved(state: AlertState, open_subjects: Collection[str]) -> list[str]:
    return [subject for subject in state.reported if subject not in open_subjects]


def note_sent(state: AlertState, now: Moment) -> AlertState:
    return replace(state, pending=None, sent=state.sent + 1, last_sent_at=now, last_error=None)


def note_refused(state: AlertState, error: str, now: Moment) -> AlertState:
    """Schedules the next attempt."""
    pending = state.pending
    if pending is None:
        return state
    wait = compute_webhook_delay(pending.attempts)
    again = replace(
        pending,
        attempts=pending.attempts + 1,
        due_at=now + int(wait * MICROS_PER_SECOND),
        error=error,
    )
    return replace(state, pending=again, last_error=error)


def describe_case(anomaly: Anomaly) -> dict[str, Any]:
    """Names, counts and ids of an anomaly; never bodies or error texts."""
    return {
        "id": anomaly.id,
        "kind": anomaly.kind,
        "severity": anomaly.severity,
        "scope": anomaly.scope,
        "queue": anomaly.queue,
        "type": anomaly.type,
        "consumer": anomaly.consumer,
        "count": anomaly.count,
        "message_id": None if anomaly.message_id is None else str(anomaly.message_id),
        "first_at": anomaly.first_at,
        "last_at": anomaly.last_at,
    }


def make_text(type: NoticeType, name: str, lines: Sequence[str], total: int) -> str:
    """Returns what a chat shows: one line for each anomaly."""
    if type == "alert.test":
        return f"[{name}] test alert: this webhook works"
    verb = "resolved" if type == "alert.resolved" else "open"
    rest = [f"and {total - len(lines)} more"] if total > len(lines) else []
    noun = "anomaly" if total == 1 else "anomalies"
    return "\n".join([f"[{name}] {total} {noun} {verb}", *lines, *rest])


def format_line(anomaly: Anomaly) -> str:
    """One line without the texts of an app's own detectors."""
    place = " / ".join(filter(None, (anomaly.queue, anomaly.type, anomaly.consumer)))
    said = anomaly.text if anomaly.kind in SENTENCES else f"{anomaly.count} found"
    return f"{anomaly.severity}: {anomaly.kind} {place}: {said}"


def split_subject(subject: str) -> str:
    """Describes an anomaly that is no longer listed."""
    kind, _, rest = subject.partition("|")
    _, type_, consumer = (*rest.split("|", 2), "", "")[:3]
    return " ".join(filter(None, (kind, type_, consumer)))
