"""The message lifecycle: what a settlement makes of a message, and dead letters."""

import random
from typing import assert_never

from penstock.model.message import (
    Fail,
    Flag,
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
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Lease, Move
from penstock.rules.backoff import Random, compute_delay, find_death_reason

LEASE_EXPIRED = "LEASE_EXPIRED"
MIN_PARK_DELAY_S, MAX_PARK_DELAY_S = 30.0, 600.0
# A stored step does not fit the code. It is parked, because another worker may have the old code.
CODE_CHANGED = "CODE_CHANGED"
MAX_CODE_CHANGED_PARKS = 10


def settle(
    lease: Lease, settlement: Settlement, settings: QueueSettings, draw: Random = random.random
) -> Move:
    """Decides the next state of a claimed message."""
    if (overruled := settle_by_flags(lease, settlement)) is not None:
        return overruled
    match settlement:
        case Nack():
            return nack(lease, settlement, settings, draw)
        case Fail():
            return end(lease, settlement, State.FAILED)
        case SettleReject():
            return end(lease, settlement, State.DEAD, "rejected")
        case SettleCancelled():
            return end(lease, settlement, State.CANCELLED, "requested", counted=False)
        case Release() | Park():
            return hand_back(lease, settlement, settings)
        case Reclaim():
            return reclaim(lease, settlement, settings, draw)


def settle_by_flags(lease: Lease, settlement: Settlement) -> Move | None:
    """Keeps an unhandled dead letter dead, and cancels a message with a cancel request."""
    if lease.flags & Flag.FROM_DEAD and not isinstance(settlement, Fail):
        return end(lease, settlement, State.DEAD, lease.dead_reason, counted=False)
    if lease.flags & Flag.CANCEL_REQUESTED and not isinstance(settlement, SettleReject | Fail):
        return end(lease, settlement, State.CANCELLED, "requested", counted=False)
    return None


def nack(lease: Lease, settlement: Nack, settings: QueueSettings, draw: Random) -> Move:
    used = lease.attempts + 1 if settings.retry.count == "attempts" else lease.deliveries
    delay = settlement.delay
    if delay is None and settings.retry.on_nack == "dead" and lease.meta.max_attempts is None:
        return end(lease, settlement, State.DEAD, "retries_exhausted")
    if delay is None:
        delay = compute_delay(used, settings.backoff, draw)
    elif settings.clamp:
        delay = min(delay, settings.backoff.max)
    if exhausted := find_death_reason(lease, settings, used, delay, settlement):
        return end(lease, settlement, State.DEAD, exhausted)
    return requeue(lease, settlement, settings, lease.attempts + 1, delay, settlement.reason)


def reclaim(lease: Lease, settlement: Reclaim, settings: QueueSettings, draw: Random) -> Move:
    if lease.flags & Flag.UNBEGUN:
        return hand_back(lease, settlement, settings, LEASE_EXPIRED)
    counted = settings.retry.on_expiry != "keep"
    attempts = lease.attempts + counted
    used = attempts if settings.retry.count == "attempts" else lease.deliveries
    if not counted and settings.retry.count == "attempts":
        # The attempts were allowed when they were nacked, perhaps by limits of the consumer.
        used = 0
    backs_off = settings.retry.on_expiry == "backoff"
    delay = compute_delay(used, settings.backoff, draw) if backs_off else 0.0
    if exhausted := find_death_reason(lease, settings, used, delay):
        return end(lease, settlement, State.DEAD, exhausted, counted=counted)
    return requeue(lease, settlement, settings, attempts, delay, LEASE_EXPIRED)


def requeue(
    lease: Lease,
    settlement: Settlement,
    settings: QueueSettings,
    attempts: int,
    delay: float,
    reason: str | None,
    given_back: int = 0,
) -> Move:
    """Makes the message ready at once, or scheduled after the delay."""
    return Move(
        lease.id,
        lease.fence,
        lease.flags,
        settlement.verb,
        State.SCHEDULED if delay > 0 else State.READY,
        attempts,
        lease.deliveries - given_back,
        reason,
        get_error(settlement),
        delay,
        settings.ordering == "ready_time" and (delay > 0 or isinstance(settlement, Nack)),
        find_expiry(lease, settlement),
        get_traceback(settlement),
    )


def hand_back(
    lease: Lease, settlement: Settlement, settings: QueueSettings, reason: str | None = None
) -> Move:
    """Returns the message without counting the delivery. A parked one waits longer each time."""
    delay = 0.0
    if isinstance(settlement, Park):
        if settlement.reason == CODE_CHANGED and lease.parked >= MAX_CODE_CHANGED_PARKS:
            return end(lease, settlement, State.DEAD, CODE_CHANGED, counted=False)
        # Five doublings exceed the maximum; an unbounded exponent would overflow.
        delay = min(MIN_PARK_DELAY_S * 2 ** min(lease.parked, 5), MAX_PARK_DELAY_S)
        reason = settlement.reason
    return requeue(lease, settlement, settings, lease.attempts, delay, reason, given_back=1)


def end(
    lease: Lease,
    settlement: Settlement,
    state: State,
    reason: str | None = None,
    *,
    counted: bool = True,
) -> Move:
    """Ends the message in a final state, or as a dead letter."""
    return Move(
        lease.id,
        lease.fence,
        lease.flags,
        settlement.verb,
        state,
        lease.attempts + counted,
        lease.deliveries,
        reason,
        get_error(settlement),
        expired_by=find_expiry(lease, settlement),
        traceback=get_traceback(settlement),
    )


def get_traceback(settlement: Settlement) -> str | None:
    return settlement.traceback if isinstance(settlement, Nack | Fail | SettleReject) else None


def get_error(settlement: Settlement) -> str | None:
    match settlement:
        case Nack(error) | Fail(error) | SettleReject(error) | SettleCancelled(error):
            return error
        case Reclaim():
            return LEASE_EXPIRED
        case Release() | Park():
            return None
    assert_never(settlement)


def find_expiry(lease: Lease, settlement: Settlement) -> Moment | None:
    return lease.now if isinstance(settlement, Reclaim) else None
