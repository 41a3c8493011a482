"""Retries of a message: the delay before the next run, and the limits of attempts."""

import random
from collections.abc import Callable
from typing import assert_never

from penstock.model.message import Meta, Nack
from penstock.model.settings import Backoff, QueueSettings
from penstock.model.store_types import Lease

NO_LIMITS = Nack()
Random = Callable[[], float]


def find_death_reason(
    lease: Lease, settings: QueueSettings, used: int, delay: float, own: Nack = NO_LIMITS
) -> str | None:
    """Returns why the message gets no further run, or None if it does."""
    max_attempts, max_deliveries = compute_limits(
        lease.meta, settings, own.max_attempts, lease.attempts
    )
    if used >= max_attempts:
        return "retries_exhausted"
    if lease.deliveries >= max_deliveries:
        return "max_deliveries"
    max_total = settings.backoff.max_total if own.max_total is None else own.max_total
    if max_total is not None:
        waited = (lease.now - lease.first_claimed_at) / 1_000_000
        if waited + delay > max_total:
            return "retries_exhausted"
    return None


def compute_limits(
    meta: Meta, settings: QueueSettings, own: int | None = None, attempts: int = 0
) -> tuple[int, int]:
    """Returns max_attempts and max_deliveries of the settlement, the message or the queue.

    `attempts` are those that ended. A consumer may have allowed more of them than the queue does.
    """
    own = own or meta.max_attempts
    if meta.max_deliveries:
        return own or settings.max_attempts, meta.max_deliveries
    if own:
        return own, max(own, attempts) + 3
    if settings.max_deliveries:
        return settings.max_attempts, settings.max_deliveries
    return settings.max_attempts, max(settings.max_attempts, attempts) + 3


def compute_delay(used: int, backoff: Backoff, draw: Random = random.random) -> float:
    """Returns the seconds until the next run, after `used` runs."""
    return apply_jitter(min(compute_backoff(used, backoff), backoff.max), backoff, draw)


def compute_backoff(used: int, backoff: Backoff) -> float:
    match backoff.kind:
        case "none":
            return 0.0
        case "constant":
            return backoff.initial
        case "linear":
            return backoff.initial + backoff.step * (used - 1)
        case "exponential":
            try:
                return backoff.initial * float(backoff.factor) ** (used - 1)
            except OverflowError:
                return backoff.max if backoff.initial else 0.0
    assert_never(backoff.kind)


def apply_jitter(delay: float, backoff: Backoff, draw: Random) -> float:
    match backoff.jitter:
        case "none":
            return delay
        case "full":
            return delay * draw()
        case "equal":
            return delay * (0.5 + draw() / 2)
    spread = backoff.spread()
    if backoff.jitter.startswith("add:"):
        return delay * (1 + spread * draw())
    return delay * (1 + spread * (2 * draw() - 1))
