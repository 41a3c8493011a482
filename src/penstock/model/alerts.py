"""Alerts: which anomalies are sent to which webhook, and what was sent."""

from typing import Literal

from msgspec import Struct, field

from penstock.model.message import Moment

NoticeType = Literal["alert.firing", "alert.resolved", "alert.test"]


class Alert(Struct, frozen=True, kw_only=True):
    """Sends anomalies of these kinds, severities and queues to a webhook.

    Empty selects all. An anomaly must have lasted `min_duration` seconds, and notices of new
    anomalies are `cooldown` seconds apart; those that open meanwhile are sent together.
    """

    name: str
    tenant: str
    scope: str
    url: str
    kinds: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    min_duration: float = 0.0
    cooldown: float = 300.0
    created_at: Moment = 0


class PendingNotice(Struct, frozen=True):
    """A notice that the receiver has not accepted yet."""

    id: str
    type: NoticeType
    body: str
    attempts: int = 0
    due_at: Moment = 0
    error: str | None = None


class AlertState(Struct, frozen=True):
    """The delivery state of an alert. `reported` has open anomalies by subject, and when sent.

    `opened` says since when the open anomalies last, if the alert has a minimum duration.
    """

    reported: dict[str, Moment] = field(default_factory=dict, name="told")
    pending: PendingNotice | None = None
    sent: int = 0
    last_sent_at: Moment | None = None
    last_fired_at: Moment | None = None
    last_error: str | None = None
    test_requested: bool = False
    opened: dict[str, Moment] = {}


class AlertStatus(Struct, frozen=True):
    """An alert and what was sent of it."""

    alert: Alert
    state: AlertState
