"""Ack policies: how the outcome of a run settles its message."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from penstock.model import message
from penstock.model.fields import MAX_DELAY_S
from penstock.model.message import Leased, Settlement
from penstock.rules.validation import check_number
from penstock.worker.retry_strategies import AttemptTimes, Strategy, TimedStrategy, apply_strategy
from penstock.worker.tracebacks import FormattedError


class Retry(FormattedError):
    """Raise it in a handler to retry, after `delay` seconds if given."""

    def __init__(self, delay: float | None = None, reason: str = "") -> None:
        super().__init__(reason or "retry")
        check_number("delay", delay, 0.0, MAX_DELAY_S)
        self.delay = delay


class Reject(Exception):
    """Raise it in a handler to move the message to the dead letters at once."""


class Cancelled(Exception):
    """Raised by `context.raise_if_cancelled()` to stop a run that was cancelled."""


class TimedOut(FormattedError):
    """A run exceeded its timeout."""


class CodecError(Exception):
    """Arguments or a result do not match their annotations, so a retry is pointless."""


class AckPolicy(StrEnum):
    NACK_ON_ERROR = "nack_on_error"
    REJECT_ON_ERROR = "reject_on_error"
    ACK = "ack"
    ACK_FIRST = "ack_first"
    MANUAL = "manual"


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
    if isinstance(error, CodecError) or not should_retry(rules, error):
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


def format_error(error: BaseException) -> str:
    """Returns the type and message of an error, clipped."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}"[:4_000] if text else type(error).__name__
