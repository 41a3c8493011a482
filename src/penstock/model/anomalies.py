"""Anomalies: their kinds and severities, thresholds, a queue's settings, and what was found."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model.message import Moment

Severity = Literal["info", "warning", "critical"]
AnomalyState = Literal["open", "resolved"]

# Kinds found in history. Spark finds the same rows.
HISTORY_KINDS: dict[str, Severity] = {
    "flash_message": "info",
    "large_payload": "info",
    "bulk_enqueue": "info",
    "burst_dequeue": "info",
    "long_processing": "warning",
    "lost_lease": "warning",
    "near_dlq": "warning",
    "zombie_message": "warning",
    "dlq_movement": "critical",
    "poison_message": "critical",
    "stuck_consumer": "critical",
    "retry_storm": "critical",
}
# Kinds that only a running service finds.
LIVE_KINDS: dict[str, Severity] = {
    "lock_stolen": "critical",
    "bulk_delete": "warning",
    "bulk_move": "info",
    "queue_cleared": "critical",
    "no_consumer": "warning",
    "unknown_task": "warning",
    "export_stalled": "warning",
    "feed_stalled": "warning",
    "detector_failed": "warning",
    "routing_loop": "warning",
    "rule_suspended": "critical",
}
# Kinds that only Spark finds, by comparison with earlier days.
SEASONAL_KINDS: dict[str, Severity] = {
    "unusual_throughput": "warning",
    "unusual_failures": "critical",
    "unusual_wait": "warning",
    "unusual_run": "warning",
}
SEVERITIES: dict[str, Severity] = {**HISTORY_KINDS, **LIVE_KINDS, **SEASONAL_KINDS}
# The kinds of an app's own detectors are their names.
DETECTOR_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Kinds that are normal for many queues, and are off unless a queue turns them on.
QUIET_KINDS = ("flash_message", "burst_dequeue", "bulk_enqueue")


class AnomalyThresholds(Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds of all anomaly kinds. Durations are in seconds. `off` lists disabled kinds."""

    flash_under: float = 0.5
    slow_over: float = 10.0
    payload_over: int = 5_000
    # Multiples of the lease beyond its end.
    overdue_leases: float = 2.0
    burst_claims: int = 50
    burst_within: int = 5
    bulk_messages: int = 10
    lost_least: int = 1
    dead_least: int = 1
    last_chance_least: int = 1
    poison_attempts: int = 3
    poison_consumers: int = 2
    stuck_leases: int = 3
    storm_retries: int = 20
    storm_share: float = 0.5
    # Distance from the median of the same hour on earlier days, in multiples of the spread.
    season_spreads: float = 6.0
    season_days: int = 28
    season_least_days: int = 4
    # Minimum attempts per hour; fewer are not significant.
    season_least: int = 50
    off: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if name != "off" and value < MINIMUMS.get(name, 0):
                raise InvalidInput(
                    f"rule {name} must be at least {MINIMUMS.get(name, 0)}, not {value}"
                )
        refuse_unknown_kinds(self.off)
        if self.season_least_days > self.season_days:
            raise InvalidInput("rule season_least_days must not exceed season_days")

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self)).hexdigest()[:16]


MINIMUMS = {
    "burst_claims": 2,
    "burst_within": 1,
    "bulk_messages": 2,
    "lost_least": 1,
    "dead_least": 1,
    "last_chance_least": 1,
    "poison_attempts": 2,
    "poison_consumers": 1,
    "stuck_leases": 1,
    "storm_retries": 1,
    "season_days": 2,
    "season_least_days": 2,
    "season_least": 1,
}


def refuse_unknown_kinds(kinds: Iterable[str], own: Iterable[str] = ()) -> None:
    """Refuses kinds that are neither built in nor those of the app's `own` detectors."""
    known = (*SEVERITIES, *sorted(own))
    if unknown := set(kinds) - set(known):
        raise InvalidInput(
            f"unknown anomaly {', '.join(sorted(unknown))}; expected one of {', '.join(known)}"
        )


class AnomalySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The anomalies that a queue reports. Muted kinds are recorded, but raise no event or alert.

    Whether a detector has the name of a kind is for the broker to check.
    """

    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    thresholds: dict[str, float] = {}

    def __post_init__(self) -> None:
        for kinds in (self.on, self.off, self.mute):
            refuse_unknown_kinds(kind for kind in kinds if not DETECTOR_NAME.fullmatch(kind))
        self.make_thresholds()

    def make_thresholds(self) -> AnomalyThresholds:
        if not self.thresholds:
            return DEFAULT_THRESHOLDS
        try:
            return msgspec.convert(self.thresholds, AnomalyThresholds, strict=False)
        except msgspec.ValidationError as error:
            names = ", ".join(name for name in AnomalyThresholds.__struct_fields__ if name != "off")
            raise InvalidInput(f"anomalies.thresholds: {error}; expected one of {names}") from None

    @property
    def own_kinds(self) -> set[str]:
        """The kinds that are not built in."""
        return {*self.on, *self.off, *self.mute} - set(SEVERITIES)

    def allows(self, kind: str) -> bool:
        if kind in self.off:
            return False
        return kind not in QUIET_KINDS or kind in self.on


DEFAULT_THRESHOLDS = AnomalyThresholds()


class AnomalyRow(Struct, kw_only=True):
    """A stored anomaly: one kind at one place in one hour.

    `value` is the worst case and `message_id` its message. Type and consumer are empty where the
    kind has none.
    """

    kind: str
    severity: Severity
    hour: int
    queue_id: int
    type: str = ""
    consumer: str = ""
    count: int = 0
    value: float | None = None
    threshold: float | None = None
    message_id: int | None = None
    position: int = 0
    first_at: Moment = 0
    last_at: Moment = 0
    # Names and ids that explain the last case, never error texts.
    note: str | None = None

    @property
    def id(self) -> str:
        """The same as Spark's id of the row."""
        named = (self.kind, str(self.queue_id), self.type, self.consumer)
        return sha256("|".join([str(self.hour), *named]).encode()).hexdigest()[:20]

    @property
    def subject(self) -> tuple[str, int, str, str]:
        """Identifies an anomaly that continues over several hours."""
        return self.kind, self.queue_id, self.type, self.consumer


class Anomaly(Struct, frozen=True, kw_only=True):
    """Something unusual in one hour: how often, since when, the worst case and an example.

    It is open until nothing like it has happened for ten minutes.
    """

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
    message_id: int | None
    hour: Moment
    first_at: Moment
    last_at: Moment
    resolved_at: Moment | None
    muted: bool
    note: str | None
    # Stays the same from hour to hour while the anomaly goes on.
    subject: str
    tenant: str = "default"


class AnomalyReport(Struct, frozen=True):
    """The newest anomalies first. The counts are of all that were selected.

    `complete` is false if the range has more anomalies than are read: the oldest are missing.
    """

    anomalies: list[Anomaly]
    by_kind: dict[str, int]
    by_severity: dict[str, int]
    complete: bool = True
