"""Calls steps and stores their values, and reads the outcomes of children."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol

from msgspec import Struct

from penstock.errors import InvalidInput, InvalidState, ResultGone, StepTooLarge
from penstock.model.message import MICROS_PER_SECOND, After, Draft, State
from penstock.model.waiting import AwaitedOutcome
from penstock.rules.backoff import compute_delay
from penstock.rules.durations import parse_seconds
from penstock.rules.waiting import check_signal
from penstock.worker.codec import Values, read_hints
from penstock.worker.retry_strategies import RetryStrategy

MAX_TRIES = 5
MAX_RETRY_S = 60.0
# Stored for a message that completed without a result while others wait for it.
NOTHING = b"null"
anything = Values(Any, "step")


class ChildTask(Protocol):
    """The task of a call, which decodes its result."""

    results: Values


class ChildCall(Protocol):
    """A task with its arguments, as `task.call(...)` returns it."""

    @property
    def draft(self) -> Draft: ...

    @property
    def task(self) -> ChildTask: ...


class Outcome(Struct, frozen=True):
    """The end of a child. `state` is None before it ended; `value` is its result."""

    id: int
    state: State | None
    value: Any = None

    @property
    def completed(self) -> bool:
        return self.state is State.COMPLETED


def make_after(entries: tuple[int, ...], ids: tuple[int, ...], policy: str, need: int) -> After:
    match policy:
        case "all":
            return After(entries=entries, ids=ids)
        case "any":
            return After(entries=entries, ids=ids, policy="any", need=need)
        case _:
            return After(entries=entries, ids=ids, policy="settled")


def check_policy(policy: str | int, count: int) -> tuple[str, int]:
    """Returns the policy and how many it needs. A number means that many completed ones."""
    if isinstance(policy, int):
        if not 1 <= policy <= count:
            raise InvalidInput(f"policy {policy} needs 1 to {count} of {count} calls")
        return "any", policy
    if policy not in ("all", "any", "settled"):
        raise InvalidInput(f"policy {policy!r} must be all, any, settled or a number")
    return policy, 1


def make_outcome(found: AwaitedOutcome, state: str | None, values: Values) -> Outcome:
    if state != State.COMPLETED:
        return Outcome(found.id, None if state is None else State(state))
    if found.result is None:
        raise ResultGone(f"the result of message {found.id} is no longer stored")
    try:
        return Outcome(found.id, State.COMPLETED, values.decode(found.result))
    except InvalidInput:
        if found.result == NOTHING:
            raise ResultGone(f"message {found.id} completed without a result") from None
        raise


def encode_step(values: Values, value: Any) -> bytes:
    try:
        return values.encode_checked(value)
    except InvalidInput as error:
        raise StepTooLarge(f"its result cannot be stored: {error}") from None


async def try_again(call: Callable[[], Awaitable[Any]], retry: RetryStrategy | None) -> Any:
    """Calls it, and again after a failure within the limits of a step."""
    if retry is None:
        return await call()
    tries = min(retry.max_attempts or MAX_TRIES, MAX_TRIES)
    async with asyncio.timeout(MAX_RETRY_S):
        for attempt in range(1, tries):
            try:
                return await call()
            except Exception:  # noqa: BLE001 - the last failure is raised
                await asyncio.sleep(compute_delay(attempt, retry.backoff, random.random))
        return await call()


def make_values(function: Callable[..., Any], name: str) -> Values:
    """Makes the codec of a step's result by the annotation of its function."""
    try:
        kind = read_hints(function, name).get("return", Any)
    except (InvalidInput, TypeError):
        return anything
    return anything if kind in (Any, object) else Values(kind, f"step {name!r}")


async def call_function(
    function: Callable[..., Any], args: Sequence[Any], timeout: float | None
) -> Any:
    """Calls a coroutine function here, and any other in a thread."""
    async with asyncio.timeout(timeout):
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        value = await asyncio.to_thread(function, *args)
        return await value if inspect.isawaitable(value) else value


def read_until(duration: str | float | None, until: datetime | None) -> tuple[float | None, Any]:
    """Returns the seconds to sleep, or the moment to sleep until."""
    if (duration is None) == (until is None):
        raise InvalidInput("pass either a duration or until=")
    if until is None:
        return parse_seconds(duration if duration is not None else 0), None
    if until.tzinfo is None:
        raise InvalidInput(f"{until} has no time zone; pass one that has")
    return None, int(until.timestamp() * MICROS_PER_SECOND)


def check_wait(name: str, timeout: str | float | None) -> float | None:
    check_signal(name, b"", None)
    return None if timeout is None else parse_seconds(timeout)


def refuse_steps(reason: str) -> NoReturn:
    raise InvalidState(f"durable steps cannot be used {reason}")
