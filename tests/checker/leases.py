"""Rules: a lease holds until its end, and not much longer."""

from collections.abc import Iterator
from itertools import pairwise

from .events import Fault, Settle
from .history import FOREVER, History, Operation
from .lives import Delivery, Evidence, Life
from .report import Kind, Violation

CLOSING = {"stop": ("cont", "kill", "heal"), "cut": ("heal",)}


def lease_until(life: Life, delivery: Delivery) -> int:
    """The latest end the store promised this delivery."""
    handed = delivery.handed
    promised = [handed.lease_until, handed.claimed_at + int(handed.lease * 1_000_000)]
    for settle in life.settles:
        if settle.accepted and settle.call.verb == "extend" and settle.call.fence == handed.fence:
            promised.append(settle.answer.lease_until or 0)
    return max(promised)


def lease_broken_early(evidence: Evidence) -> Iterator[Violation]:
    """Nobody else has a message before its lease is over, unless it was given up."""
    slack = int(evidence.plan.lease_slack * 1_000_000)
    for life in evidence.lives.values():
        for delivery, at, taker in _takings(life):
            early = lease_until(life, delivery) - slack - at
            if early > 0:
                text = f"message {life.id}: {taker} broke the lease of {delivery.text}"
                text += f" {early / 1_000_000:.3f} s too early"
                yield Violation(Kind.LEASE_BROKEN_EARLY, text, (life.id,))


def _takings(life: Life) -> Iterator[tuple[Delivery, int, str]]:
    """When and by whom each delivery that nobody can have given up was taken away."""
    for first, second in pairwise(life.deliveries):
        if not life.ends.get(first.fence):
            yield first, second.handed.claimed_at, second.text
    for delivery, at in _reclaims(life):
        yield delivery, at, "reclaim"


def _reclaims(life: Life) -> Iterator[tuple[Delivery, int]]:
    for delivery in life.deliveries:
        for row in life.rows_by_fence.get(delivery.fence, ()):
            if row.verb == "reclaim":
                yield delivery, row.at


def waits(life: Life) -> Iterator[tuple[Delivery, int, int]]:
    """The end of each lease that was reclaimed, where it is sure, and the moment of the reclaim."""
    for delivery, at in _reclaims(life):
        if not any(_lengthens(settle, delivery) for settle in life.settles):
            yield delivery, lease_until(life, delivery), at


def _lengthens(settle: Operation[Settle], delivery: Delivery) -> bool:
    """An extend that may have been done, nobody knows until when."""
    extends = settle.call.verb == "extend" and settle.call.fence == delivery.fence
    return extends and settle.possible and settle.answer.lease_until is None


def late_reclaim(evidence: Evidence) -> Iterator[Violation]:
    """An expired lease is free again within the bound, except while a fault reigns."""
    bound = int(evidence.plan.reclaim_within * 1_000_000)
    offset = _clock_offset(evidence.history)
    windows = _fault_windows(evidence.history)
    for life in evidence.lives.values():
        for delivery, until, at in waits(life):
            late = at - until > bound
            if late and not _excused(windows, until * 1000 - offset, at * 1000 - offset):
                text = f"message {life.id}: the lease of {delivery.text} was reclaimed"
                text += f" {(at - until) / 1_000_000:.3f} s after its end"
                yield Violation(Kind.LATE_RECLAIM, text, (life.id,))


def _clock_offset(history: History) -> int:
    """The store's clock minus the monotonic one, by the quickest claim, in nanoseconds."""
    claims = [claim for claim in history.claims if claim.answer.claims]
    if not claims:
        return 0
    quickest = min(claims, key=lambda claim: claim.end - claim.start)
    middle = (quickest.start + quickest.end) // 2
    return quickest.answer.claims[0].claimed_at * 1000 - middle


def _fault_windows(history: History) -> list[tuple[int, int]]:
    """When reclaiming may be late: from each fault that excuses it until its shadow ends."""
    shadow = int(history.plan.fault_shadow * 1_000_000_000)
    faults = sorted(history.faults, key=lambda fault: fault.at)
    return [
        (fault.at, _closed_at(fault, faults[number + 1 :]) + shadow)
        for number, fault in enumerate(faults)
        if fault.kind in history.plan.excuses
    ]


def _closed_at(fault: Fault, later: list[Fault]) -> int:
    """A kill is over at once; a stop or a cut lasts until somebody ends it."""
    closing = CLOSING.get(fault.kind)
    if closing is None:
        return fault.at
    ends = (e.at for e in later if e.kind in closing and e.target in (fault.target, ""))
    return next(ends, FOREVER)


def _excused(windows: list[tuple[int, int]], start: int, end: int) -> bool:
    return any(opened <= end and start <= closed for opened, closed in windows)
