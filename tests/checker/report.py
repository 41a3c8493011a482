"""What a check found."""

from collections import Counter
from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """The ways in which a history can break a promise."""

    LOST = "lost"
    VANISHED = "vanished"
    REFUSED_BUT_DELIVERED = "refused_but_delivered"
    PHANTOM = "phantom"
    DUPLICATE_ID = "duplicate_id"
    DUPLICATE_LABEL = "duplicate_label"
    DEDUP_BROKEN = "dedup_broken"
    BATCH_TORN = "batch_torn"
    BODY_CORRUPT = "body_corrupt"
    EARLY_DELIVERY = "early_delivery"
    DOUBLE_ACK = "double_ack"
    REDELIVERED_AFTER_ACK = "redelivered_after_ack"
    STALE_FENCE_ACCEPTED = "stale_fence_accepted"
    UNKNOWN_FENCE_ACCEPTED = "unknown_fence_accepted"
    FENCE_REUSED = "fence_reused"
    FENCE_NOT_GROWING = "fence_not_growing"
    REFUSED_BUT_APPLIED = "refused_but_applied"
    LEASE_BROKEN_EARLY = "lease_broken_early"
    LATE_RECLAIM = "late_reclaim"
    ATTEMPTS_WRONG = "attempts_wrong"
    DELIVERIES_WRONG = "deliveries_wrong"
    OVER_DELIVERED = "over_delivered"
    DEAD_TOO_EARLY = "dead_too_early"
    ORDER = "order"
    STUCK = "stuck"
    ACKED_BUT_NOT_COMPLETED = "acked_but_not_completed"
    COMPLETED_WITHOUT_ACK = "completed_without_ack"
    TWO_FINALS = "two_finals"
    ENDED_TWICE = "ended_twice"
    TWO_PLACES = "two_places"
    HISTORY_GAP = "history_gap"
    CANCELLED_BUT_DELIVERED = "cancelled_but_delivered"
    RESUMED_EARLY = "resumed_early"
    CRON_DOUBLE_FIRE = "cron_double_fire"
    CRON_MISSED = "cron_missed"
    VACUOUS = "vacuous"
    UNREADABLE = "unreadable"


class Violation(Struct, frozen=True):
    kind: Kind
    text: str
    ids: tuple[int, ...] = ()


class Latency(Struct, frozen=True):
    """Seconds."""

    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Measures(Struct, frozen=True):
    """What happened, so that a clean report is not an empty one.

    `unknown`: publishes of which nobody was told whether they happened; `recovered`: those of
    them whose message was found later.
    `fenced`: settles refused because their fence was old. `reclaim`: after the lease's end.
    """

    published: int
    confirmed: int
    delivered: int
    redeliveries: int
    fenced: int
    unknown: int
    recovered: int
    reclaims: int
    reclaim: Latency
    faults: dict[str, int]


class Report(Struct, frozen=True):
    violations: list[Violation]
    measures: Measures

    @property
    def valid(self) -> bool:
        return not self.violations

    @property
    def counts(self) -> dict[Kind, int]:
        return dict(Counter(violation.kind for violation in self.violations))
