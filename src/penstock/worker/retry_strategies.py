"""Retry strategies of tasks and subscribers: the delay before each further attempt."""

import random
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from penstock.model import message
from penstock.model.fields import MAX_DELAY_S, MAX_RUNS
from penstock.model.message import Leased, Settlement
from penstock.model.settings import Backoff, check_range
from penstock.rules.backoff import compute_delay
from penstock.rules.settlements import check_settlement


class Strategy(Protocol):
    """A custom retry strategy: returns the delay after an attempt, or None to give up.

    If it has attributes `max_attempts` and `max_total_delay`, they apply as well.
    """

    def delay(self, attempt: int) -> float | None: ...


@runtime_checkable
class TimedStrategy(Protocol):
    """A custom retry strategy that knows when the first and the last attempt began.

    Returns when to try again, or None to give up. A worker reads the times from the store.
    """

    def get_next_attempt_at(
        self, *, first_attempt_at: datetime, last_attempt_at: datetime, attempts_count: int
    ) -> datetime | None: ...


class AttemptTimes(NamedTuple):
    first_at: datetime
    last_at: datetime


class RetryStrategy(Struct, frozen=True):
    """Retries with a backoff, until `max_attempts` or `max_total_delay` seconds since the first.

    Without limits it retries for ever, unless the message has a limit of its own.
    """

    backoff: Backoff
    max_attempts: int | None = None
    max_total_delay: float | None = None

    def __post_init__(self) -> None:
        check_range("max_attempts", self.max_attempts, 1, MAX_RUNS)
        check_range("max_total_delay", self.max_total_delay, 0, MAX_DELAY_S)

    def delay(self, attempt: int) -> float | None:
        return compute_delay(attempt, self.backoff, random.random)


def constant(
    delay: float,
    *,
    jitter: str = "none",
    max_attempts: int | None = None,
    max_total_delay: float | None = None,
) -> RetryStrategy:
    backoff = Backoff(kind="constant", initial=delay, max=delay, jitter=jitter)
    return RetryStrategy(backoff, max_attempts, max_total_delay)


def linear(
    initial: float,
    step: float,
    *,
    longest: float = 3600.0,
    jitter: str = "none",
    max_attempts: int | None = None,
    max_total_delay: float | None = None,
) -> RetryStrategy:
    backoff = Backoff(kind="linear", initial=initial, step=step, max=longest, jitter=jitter)
    return RetryStrategy(backoff, max_attempts, max_total_delay)


def exponential(
    initial: float = 1.0,
    factor: float = 2.0,
    *,
    longest: float = 3600.0,
    jitter: str = "none",
    max_attempts: int | None = None,
    max_total_delay: float | None = None,
) -> RetryStrategy:
    backoff = Backoff(initial=initial, factor=factor, max=longest, jitter=jitter)
    return RetryStrategy(backoff, max_attempts, max_total_delay)


def no_retry() -> RetryStrategy:
    return RetryStrategy(Backoff(kind="none", jitter="none"), max_attempts=1)


def apply_strategy(
    strategy: Strategy | TimedStrategy,
    delivery: Leased,
    nack: message.Nack,
    times: AttemptTimes | None,
) -> Settlement:
    """Asks the strategy for a delay. Raises if it is invalid."""
    delay = compute_strategy_delay(strategy, delivery.attempts + 1, times)
    if delay is None:
        return message.SettleReject(nack.error)
    own = getattr(strategy, "max_attempts", None)
    most_runs = own or delivery.meta.max_attempts or MAX_RUNS
    most_time = getattr(strategy, "max_total_delay", None)
    return check_settlement(message.Nack(nack.error, delay, nack.reason, most_runs, most_time))


def compute_strategy_delay(
    strategy: Strategy | TimedStrategy, attempt: int, times: AttemptTimes | None
) -> float | None:
    if not isinstance(strategy, TimedStrategy):
        return strategy.delay(attempt)
    assert times is not None, "the caller reads the times for a timed strategy"
    next_at = strategy.get_next_attempt_at(
        first_attempt_at=times.first_at, last_attempt_at=times.last_at, attempts_count=attempt
    )
    if next_at is None:
        return None
    return max(0.0, (next_at - datetime.now(UTC)).total_seconds())
