"""The contract's arithmetic, told a second time: ranks, limits, delays, and settlements."""

from dataclasses import dataclass
from typing import assert_never

from penstock.model.message import (
    NEVER,
    Draft,
    Fail,
    Moment,
    Nack,
    Park,
    Reclaim,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
)
from penstock.model.settings import Backoff, QueueSettings
from tests.conformance.model.items import SECOND, Item

UNLIMITED = Nack()


@dataclass(frozen=True)
class Ruling:
    """What becomes of a lease: where it goes, its counters, and what history says of it."""

    state: State
    attempts: int
    deliveries: int
    reason: str | None = None
    error: str | None = None
    delay: float = 0.0


def rank(draft: Draft, settings: QueueSettings, created_at: Moment, due_at: Moment) -> int:
    if settings.ordering == "fifo":
        return 0
    if settings.ordering == "ready_time":
        return due_at // 1000
    if settings.ordering == "deadline":
        return NEVER if draft.deadline is None else draft.deadline // 1000
    if settings.seconds_per_level is None:
        return -draft.priority
    return created_at // 1000 - round(draft.priority * settings.seconds_per_level * 1000)


def backoff_delay(used: int, backoff: Backoff) -> float:
    delays = {
        "none": 0.0,
        "constant": backoff.initial,
        "linear": backoff.initial + (used - 1) * backoff.step,
        "exponential": backoff.initial * backoff.factor ** (used - 1),
    }
    return min(delays[backoff.kind], backoff.max)


def runs(item: Item, asked: int | None = None) -> tuple[int, int]:
    """How many attempts and deliveries it may have: as asked now, by itself, by its queue."""
    settings = item.queue.settings
    own = asked or item.draft.max_attempts
    general = own + 3 if own else settings.max_deliveries or settings.max_attempts + 3
    return own or settings.max_attempts, item.draft.max_deliveries or general


def rule(item: Item, settlement: Settlement, now: Moment) -> Ruling:
    """From the dead letters, after a cancel request, or as usual."""
    if item.held().from_dead:
        return from_dead(item, settlement)
    if item.held().cancel_requested and not isinstance(settlement, Fail | SettleReject):
        return make_end(item, State.CANCELLED, "requested", error_of(settlement), counts=0)
    return usual(item, settlement, now)


def usual(item: Item, settlement: Settlement, now: Moment) -> Ruling:
    match settlement:
        case Fail(error):
            return make_end(item, State.FAILED, None, error)
        case SettleReject(error):
            return make_end(item, State.DEAD, "rejected", error)
        case SettleCancelled(error):
            return make_end(item, State.CANCELLED, "requested", error, counts=0)
        case Release():
            return return_unworked(item, None)
        case Park(reason):
            return return_unworked(item, reason, delay=min(30.0 * 2**item.parked, 600.0))
        case Nack():
            return apply_nack(item, settlement, now)
        case Reclaim():
            return apply_reclaim(item, now)
    assert_never(settlement)


def from_dead(item: Item, settlement: Settlement) -> Ruling:
    if isinstance(settlement, Fail):
        return make_end(item, State.FAILED, None, settlement.error)
    return make_end(item, State.DEAD, item.dead_reason, error_of(settlement), counts=0)


def make_end(
    item: Item, state: State, reason: str | None, error: str | None, *, counts: int = 1
) -> Ruling:
    return Ruling(state, item.attempts + counts, item.deliveries, reason, error)


def return_unworked(
    item: Item, reason: str | None, *, error: str | None = None, delay: float = 0.0
) -> Ruling:
    return waiting(item.attempts, item.deliveries - 1, reason, error, delay)


def waiting(
    attempts: int, deliveries: int, reason: str | None, error: str | None, delay: float
) -> Ruling:
    state = State.SCHEDULED if delay > 0 else State.READY
    return Ruling(state, attempts, deliveries, reason, error, delay)


def apply_nack(item: Item, nack: Nack, now: Moment) -> Ruling:
    settings = item.queue.settings
    attempts = item.attempts + 1
    used = item.deliveries if settings.retry.count == "deliveries" else attempts
    delay = backoff_delay(used, settings.backoff) if nack.delay is None else nack.delay
    if settings.clamp:
        delay = min(delay, settings.backoff.max)
    reason = find_exhausted(item, used, now, delay, nack)
    if reason is not None:
        return Ruling(State.DEAD, attempts, item.deliveries, reason, nack.error)
    return waiting(attempts, item.deliveries, nack.reason, nack.error, delay)


def apply_reclaim(item: Item, now: Moment) -> Ruling:
    if item.held().unbegun:
        return return_unworked(item, "LEASE_EXPIRED", error="LEASE_EXPIRED")
    settings = item.queue.settings
    attempts = item.attempts + (settings.retry.on_expiry in ("count", "backoff"))
    used = item.deliveries if settings.retry.count == "deliveries" else attempts
    delay = 0.0
    if settings.retry.on_expiry == "backoff":
        delay = backoff_delay(used, settings.backoff)
    reason = find_exhausted(item, used, now, delay)
    if reason is not None:
        return Ruling(State.DEAD, attempts, item.deliveries, reason, "LEASE_EXPIRED")
    return waiting(attempts, item.deliveries, "LEASE_EXPIRED", "LEASE_EXPIRED", delay)


def find_exhausted(
    item: Item, used: int, now: Moment, delay: float, asked: Nack = UNLIMITED
) -> str | None:
    max_attempts, max_deliveries = runs(item, asked.max_attempts)
    if used >= max_attempts:
        return "retries_exhausted"
    if item.deliveries >= max_deliveries:
        return "max_deliveries"
    total = asked.max_total or item.queue.settings.backoff.max_total
    assert item.first_claimed_at is not None
    if total is not None and now + delay * SECOND - item.first_claimed_at > total * SECOND:
        return "retries_exhausted"
    return None


def error_of(settlement: Settlement) -> str | None:
    if isinstance(settlement, Reclaim):
        return "LEASE_EXPIRED"
    return getattr(settlement, "error", None)
