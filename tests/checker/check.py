"""Judges a history by every rule."""

from collections.abc import Callable, Iterator

from . import counting, cron, fencing, leases, limits, ordering, publishing, storage, waits
from .history import History
from .lives import Evidence
from .measures import measure, vacuous
from .report import Kind, Report, Violation

Rule = Callable[[Evidence], Iterator[Violation]]

RULES: tuple[Rule, ...] = (
    publishing.lost,
    publishing.vanished,
    publishing.refused_but_delivered,
    publishing.phantom,
    publishing.duplicate_id,
    publishing.duplicate_label,
    publishing.dedup_broken,
    publishing.batch_torn,
    publishing.body_corrupt,
    publishing.early_delivery,
    fencing.double_ack,
    fencing.redelivered_after_ack,
    fencing.stale_fence_accepted,
    fencing.unknown_fence_accepted,
    fencing.fence_reused,
    fencing.fence_not_growing,
    fencing.refused_but_applied,
    fencing.ended_twice,
    leases.lease_broken_early,
    leases.late_reclaim,
    counting.counters_wrong,
    limits.over_delivered,
    limits.dead_too_early,
    ordering.order,
    storage.stuck,
    storage.acked_but_not_completed,
    storage.completed_without_ack,
    storage.history_gap,
    storage.two_finals,
    storage.two_places,
    storage.cancelled_but_delivered,
    waits.resumed_early,
    cron.cron_double_fire,
    cron.cron_missed,
)


def check(history: History) -> Report:
    """Every violation of the promises that the history proves, and what happened in it."""
    evidence = Evidence(history)
    measures = measure(evidence)
    violations = [Violation(Kind.UNREADABLE, flaw) for flaw in history.flaws]
    violations += vacuous(evidence, measures)
    for rule in RULES:
        violations += rule(evidence)
    return Report(violations, measures)
