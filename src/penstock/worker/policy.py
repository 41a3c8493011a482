"""Ack policies and retry strategies: how the outcome of a run settles its message."""

import random
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias, cast

from msgspec import Struct

from penstock.model import message
from penstock.model.fields import MAX_DELAY_S, MAX_RUNS
from penstock.model.message import Leased, Settlement
from penstock.model.settings import Backoff, check_range
from penstock.rules.lifecycle import compute_delay
from penstock.rules.settlements import check_settlement
from penstock.rules.validation import check_number
from penstock.worker.tracebacks import Reported


class Retry(Reported):
    """Raise it in a handler to retry, after `delay` seconds if given."""

    def __init__(self, delay: float | None = None, reason: str = "") -> None:
        super().__init__(reason or "retry")
        check_number("delay", delay, 0.0, MAX_DELAY_S)
        self.delay = delay


class Reject(Exception):
    """Raise it in a handler to move the message to the dead letters at once."""


class Cancelled(Exception):
    """Raised by `context.raise_if_cancelled()` to stop a run that was cancelled."""


class TimedOut(Reported):
    """A run exceeded its timeout."""


class Unfit(Exception):
    """Arguments or a result do not match their annotations, so a retry is pointless."""


class AckPolicy(StrEnum):
    NACK_ON_ERROR = "nack_on_error"
    REJECT_ON_ERROR = "reject_on_error"
    ACK = "ack"
    ACK_FIRST = "ack_first"
    MANUAL = "manual"


class Strategy(Protocol):
    """A custom retry strategy: returns the delay after an attempt, or None to give up.

    If it has attributes `max_attempts` and `max_total_delay`, they apply as well.
    """

    def delay(self, attempt: int) -> float | None: ...


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


class AckRules(Struct, frozen=True):
    """The ack policy and retry rules of one handler."""

    policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    strategy: Strategy | TimedStrategy | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    no_retry_on: tuple[type[BaseException], ...] = ()

    @property
    def timed(self) -> bool:
        return hasattr(self.strategy, "get_next_attempt_at")


# None means ack.
Verdict: TypeAlias = Settlement | None


NOT_SETTLED = "the handler ended without ack, nack or reject"


def judge(
    rules: AckRules,
    delivery: Leased,
    error: BaseException | None,
    times: AttemptTimes | None = None,
) -> Verdict:
    """Decides the settlement of a run that returned (error None) or raised.

    A timed strategy needs `times`; without them the queue's backoff applies.
    """
    if error is None:
        return message.SettleReject(NOT_SETTLED) if rules.policy is AckPolicy.MANUAL else None
    match error:
        case Cancelled():
            return message.SettleCancelled()
        case Reject():
            return message.SettleReject(format_error(error))
        case Retry():
            nack = message.Nack(format_error(error), error.delay)
            return follow_strategy(rules, delivery, nack, times)
    if rules.policy in (AckPolicy.ACK, AckPolicy.ACK_FIRST):
        return None
    if isinstance(error, Unfit) or not should_retry(rules, error):
        return message.SettleReject(format_error(error))
    return retry(rules, delivery, error, times)


def should_retry(rules: AckRules, error: BaseException) -> bool:
    if rules.policy is AckPolicy.REJECT_ON_ERROR:
        return False
    if rules.no_retry_on and isinstance(error, rules.no_retry_on):
        return False
    if isinstance(error, TimedOut):
        return True
    if rules.policy is AckPolicy.MANUAL:
        return False
    return not rules.retry_on or isinstance(error, rules.retry_on)


def retry(
    rules: AckRules, delivery: Leased, error: BaseException, times: AttemptTimes | None
) -> Verdict:
    reason = "TIMEOUT" if isinstance(error, TimedOut) else None
    nack = message.Nack(format_error(error), None, reason)
    return follow_strategy(rules, delivery, nack, times)


def needs_times(rules: AckRules, error: BaseException | None, settlement: Verdict) -> bool:
    """True if the strategy is asked about this end, and looks at times."""
    return rules.timed and (error is not None or isinstance(settlement, message.Nack))


def follow_strategy(
    rules: AckRules, delivery: Leased, nack: message.Nack, times: AttemptTimes | None = None
) -> Settlement:
    """Asks the strategy about a nack without a delay of its own."""
    if nack.delay is not None or rules.strategy is None or (rules.timed and times is None):
        return nack
    try:
        return apply_strategy(rules.strategy, delivery, nack, times)
    except Exception as broken:  # noqa: BLE001 - user code, reported with the message
        raised = f"its retry strategy raised {format_error(broken)}"
        error = raised if nack.error is None else f"{nack.error}; {raised}"
        return message.Nack(error, None, nack.reason)


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
    if times is None:
        return cast(Strategy, strategy).delay(attempt)
    next_at = cast(TimedStrategy, strategy).get_next_attempt_at(
        first_attempt_at=times.first_at, last_attempt_at=times.last_at, attempts_count=attempt
    )
    if next_at is None:
        return None
    return max(0.0, (next_at - datetime.now(UTC)).total_seconds())


def format_error(error: BaseException) -> str:
    """Returns the type and message of an error, clipped."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}"[:4_000] if text else type(error).__name__
