"""Counts what happened, and says when that was too little to prove anything."""

from collections import Counter
from collections.abc import Iterator

from .events import INVALID_STATE, LOCK_LOST, Publish, Settle
from .history import Operation
from .leases import waits
from .lives import Evidence
from .report import Kind, Latency, Measures, Violation


def measure(evidence: Evidence) -> Measures:
    history = evidence.history
    latencies = sorted(
        max(0, at - until) / 1_000_000
        for life in evidence.lives.values()
        for _, until, at in waits(life)
    )
    return Measures(
        published=len(history.publishes),
        confirmed=sum(publish.ok for publish in history.publishes),
        delivered=sum(bool(life.deliveries) for life in evidence.lives.values()),
        redeliveries=sum(max(0, len(life.deliveries) - 1) for life in evidence.lives.values()),
        fenced=sum(map(_fenced, history.settles)),
        unknown=sum(map(_unknown, history.publishes)),
        recovered=_recovered(evidence),
        reclaims=len(latencies),
        reclaim=_latency(latencies),
        faults=dict(Counter(fault.kind for fault in history.faults)),
    )


def vacuous(evidence: Evidence, measures: Measures) -> Iterator[Violation]:
    """A run that shows no trace of what it asked for proves nothing."""
    asked = evidence.plan.faults
    missing = [f"no fault of kind {kind!r}" for kind in asked if not measures.faults.get(kind)]
    if not measures.confirmed or not measures.delivered:
        missing.append("nothing was published and delivered")
    if asked and not measures.redeliveries:
        missing.append("nothing was redelivered")
    if "stop" in asked and not measures.fenced:
        missing.append("no stale settle was refused")
    yield from (Violation(Kind.VACUOUS, text) for text in missing)


def _fenced(settle: Operation[Settle]) -> bool:
    refused = settle.answer.outcome == "refused"
    return refused and settle.answer.code in (LOCK_LOST, INVALID_STATE)


def _unknown(publish: Operation[Publish]) -> bool:
    return publish.answer.outcome == "unknown"


def _recovered(evidence: Evidence) -> int:
    return sum(
        _unknown(publish) and bool(evidence.found.get(publish.call.label))
        for publish in evidence.history.publishes
    )


def _latency(sorted_seconds: list[float]) -> Latency:
    if not sorted_seconds:
        return Latency()
    last = len(sorted_seconds) - 1
    return Latency(
        sorted_seconds[last // 2], sorted_seconds[round(last * 0.99)], sorted_seconds[last]
    )
