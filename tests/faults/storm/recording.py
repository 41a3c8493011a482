"""Writes calls and their answers into a history, in the checker's words."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.errors import PenstockError, StoreBusy, StoreError, StoreUnreachable
from penstock.model.message import Leased, Verb
from penstock.model.store_types import Answer as Told
from penstock.model.store_types import AnswerKind, Published
from tests.checker import Answer, Claimed, Recorder, events
from tests.checker.events import ALREADY_SETTLED, INVALID_STATE, LOCK_LOST, AnyCall
from tests.faults.storm.bodies import read

T = TypeVar("T")
CODES = {
    AnswerKind.ALREADY: ALREADY_SETTLED,
    AnswerKind.LOST: LOCK_LOST,
    AnswerKind.INVALID: INVALID_STATE,
}

# Of a reclaim nobody is told: the checker reads it in the dump.
VERBS: dict[Verb, events.Verb] = {
    Verb.COMPLETE: "complete",
    Verb.NACK: "nack",
    Verb.REJECT: "reject",
    Verb.FAIL: "fail",
    Verb.RELEASE: "release",
    Verb.PARK: "park",
    Verb.CANCEL: "cancel",
    Verb.WAIT: "wait",
}


async def record(
    recorder: Recorder,
    calls: Sequence[AnyCall],
    work: Awaitable[T],
    answers: Callable[[T], Sequence[Answer]],
) -> T:
    """Does the work between the lines of its calls and of their answers."""
    numbers = recorder.invoke_many(calls)
    try:
        result = await work
    except PenstockError as error:
        recorder.result_many([(number, record_refusal(error)) for number in numbers])
        raise
    recorder.result_many(list(zip(numbers, answers(result), strict=True)))
    return result


def record_refusal(error: PenstockError) -> Answer:
    """A store that was busy or not there did nothing; of other troubles nobody knows."""
    unknown = isinstance(error, StoreError) and not isinstance(error, StoreBusy | StoreUnreachable)
    return Answer("unknown" if unknown else "refused", error.code)


def record_published(outcome: Published) -> Answer:
    if outcome.code is not None:
        return Answer("refused", outcome.code)
    return Answer("ok", id=outcome.id, duplicate=outcome.duplicate)


def record_settled(told: Told, due_at: int | None = None) -> Answer:
    state = told.state.value if told.state else ""
    if told.kind is not AnswerKind.DONE:
        return Answer("refused", CODES.get(told.kind, told.kind.value.upper()), state=state)
    return Answer("ok", lease_until=told.lease_until, due_at=due_at, state=state)


def record_claimed(message: Leased, lease: float) -> Claimed:
    """`lease` is what the claim asked for; a message may have its own."""
    length = message.meta.lease or lease
    label, intact = read(message.body)
    return Claimed(
        message.id,
        label,
        message.fence,
        message.attempts,
        message.deliveries,
        message.lease_until - int(length * 1_000_000),
        message.lease_until,
        length,
        intact,
    )
