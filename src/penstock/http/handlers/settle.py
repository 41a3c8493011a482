"""The settle operations, single and batch: complete, fail, nack, reject, release, extend, ..."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import UNSET

from penstock.broker.consume import expect
from penstock.broker.local import Broker
from penstock.errors import AlreadySettled, Forbidden, InvalidInput, NotFound, PenstockError
from penstock.http.context import RequestContext
from penstock.http.events.hub import EncodedEvent, Event
from penstock.http.lock_tokens import HeldLock
from penstock.http.metrics.prometheus import count_values
from penstock.model import message as settlements
from penstock.model.message import Settlement, State
from penstock.model.queue import DEAD_LETTER, EVERY
from penstock.model.store_types import DONE, Answer, AnswerKind, Completion, Extension, Lock, Mark
from penstock.rules import validation
from penstock.rules.access import Right
from penstock.rules.events import EXTENDED
from penstock.wire import consume as wire
from penstock.wire.fields import decode_body, to_datetime, to_optional_datetime
from penstock.wire.publish import Problem

Sent = TypeVar("Sent", bound=Any)
Shape = TypeVar("Shape", wire.Settled, wire.SettleOutcome)
Held: TypeAlias = Sequence[tuple[Lock, Sent]]
Act: TypeAlias = Callable[[Broker, Held[Sent]], Awaitable[list[Answer]]]


COMPLETED = Answer(AnswerKind.DONE, State.COMPLETED)


class SettleHandler(Generic[Sent]):
    """Handles one verb, for single items and batches."""

    def __init__(self, verb: str, act: Act[Sent]) -> None:
        self.verb = verb
        self.act = act

    async def settle_one(self, call: RequestContext, sent: Sent) -> wire.Settled:
        lock = await read_lock(call, sent.token)
        return await self.settle(call, lock, sent)

    async def settle(self, call: RequestContext, lock: HeldLock, sent: Sent) -> wire.Settled:
        (answer,) = await self.act(call.broker, [(lock, sent)])
        self.record(call, [lock], [answer])
        if self.verb == "extend":
            await announce_extensions(call, [lock], [answer])
        raise_unless_done(answer, lock)
        return make_settled(wire.Settled, lock, answer)

    async def settle_batch(
        self, call: RequestContext, sent: wire.Items[Sent]
    ) -> wire.SettleOutcomes:
        read = [try_read(call, item.token) for item in sent.items]
        if not may_consume_all(call):
            read = [await try_check(call, each) for each in read]
        return await self.settle_many(call, read, sent.items)

    async def settle_many(
        self, call: RequestContext, read: Sequence[HeldLock | PenstockError], sent: Sequence[Sent]
    ) -> wire.SettleOutcomes:
        held = [
            (lock, item)
            for lock, item in zip(read, sent, strict=True)
            if isinstance(lock, HeldLock)
        ]
        answers = await self.act(call.broker, held) if held else []
        locks = [lock for lock, _ in held]
        self.record(call, locks, answers)
        if self.verb == "extend":
            await announce_extensions(call, locks, answers)
        settled = iter(answers)
        items = [
            make_outcome(lock, next(settled) if isinstance(lock, Lock) else None) for lock in read
        ]
        refused = sum(item.error is not None for item in items)
        return wire.SettleOutcomes(items, len(items) - refused, refused)

    def record(
        self, call: RequestContext, locks: Sequence[HeldLock], answers: Sequence[Answer]
    ) -> None:
        """Updates metrics. The tail of the history announces settlements."""
        service = call.service
        for kind, count in count_values([answer.kind for answer in answers]):
            service.metrics.settled.add(self.verb, kind.value, by=count)
            if kind is AnswerKind.LOST:
                note_lost_locks(call, locks, answers)
        service.wake_tail()


def note_lost_locks(
    call: RequestContext, locks: Sequence[HeldLock], answers: Sequence[Answer]
) -> None:
    for lock, answer in zip(locks, answers, strict=True):
        if answer.kind is AnswerKind.LOST:
            call.broker.note_lost_lock(lock.id, lock.fence)


async def announce_extensions(
    call: RequestContext, locks: Sequence[HeldLock], answers: Sequence[Answer]
) -> None:
    """Sends live events: history has no row of an extension."""
    if not call.service.hub.listeners:
        return
    is_news = call.service.lease_watcher.ledger.note_extension
    call.service.hub.send(
        [
            await make_extended_event(call, lock)
            for lock, answer in zip(locks, answers, strict=True)
            if answer.kind is AnswerKind.DONE
            and (answer.lease_until is None or is_news(lock.id, lock.fence, answer.lease_until))
        ]
    )


async def make_extended_event(call: RequestContext, lock: HeldLock) -> EncodedEvent:
    queue = await call.broker.get_queue_by_id(lock.queue_id)
    event = Event(
        kind=EXTENDED,
        at=datetime.now(UTC),
        scope=queue.scope.name,
        queue=queue.name,
        id=str(lock.id),
    )
    return EncodedEvent(event, call.caller.tenant)


def may_consume_all(call: RequestContext) -> bool:
    return call.caller.access.allows(Right.CONSUME, EVERY)


async def read_lock(call: RequestContext, token: str) -> HeldLock:
    """Returns the lock of a token if the caller holds it and may still consume the message."""
    lock = call.service.tokens.read(token, call.caller.holder)
    if not may_consume_all(call):
        await check_consume(call, lock)
    return lock


async def check_consume(call: RequestContext, lock: HeldLock) -> None:
    """Checks the caller's current rights on the queue, which may have been renamed."""
    caller = call.caller
    queue = await call.broker.get_queue_by_id(lock.queue_id)
    if queue.scope.tenant != caller.tenant:
        raise NotFound(f"no message with id {lock.id}")
    caller.access.check(Right.CONSUME, queue.scope.name, queue.name)
    if lock.from_dead:
        caller.access.check(Right.CONSUME, queue.scope.name, DEAD_LETTER)


async def try_check(
    call: RequestContext, lock: HeldLock | PenstockError
) -> HeldLock | PenstockError:
    if isinstance(lock, PenstockError):
        return lock
    try:
        await check_consume(call, lock)
    except (Forbidden, NotFound) as error:
        return error
    return lock


def try_read(call: RequestContext, token: str) -> HeldLock | PenstockError:
    try:
        return call.service.tokens.read(token, call.caller.holder)
    except PenstockError as error:
        return error


def raise_unless_done(answer: Answer, lock: Lock) -> None:
    """Raises the error of an answer that is not DONE."""
    if answer.kind is AnswerKind.DONE:
        return
    expect(answer, lock.id)
    if answer.kind is AnswerKind.ALREADY:
        state = answer.state.value if answer.state else "settled"
        error = AlreadySettled(f"message {lock.id} was already settled and is {state}")
        error.details = (("state", state),)
        raise error


def make_outcome(lock: Lock | PenstockError, answer: Answer | None) -> wire.SettleOutcome:
    if isinstance(lock, PenstockError):
        return wire.SettleOutcome(error=make_problem(lock))
    assert answer is not None
    if answer.kind is AnswerKind.DONE:
        return make_settled(wire.SettleOutcome, lock, answer)
    try:
        raise_unless_done(answer, lock)
    except PenstockError as error:
        return wire.SettleOutcome(str(lock.id), answer.state, error=make_problem(error))
    return make_settled(wire.SettleOutcome, lock, answer)


def make_settled(shape: type[Shape], lock: Lock, answer: Answer) -> Shape:
    return shape(
        str(lock.id),
        answer.state,
        UNSET if answer.lease_until is None else to_datetime(answer.lease_until),
        answer.cancel_requested,
        answer.delay,
        to_optional_datetime(answer.due_at),
    )


def make_problem(error: PenstockError) -> Problem:
    return Problem(error.code, str(error))


async def complete(broker: Broker, held: Held[wire.CompleteRequest]) -> list[Answer]:
    items = [
        Completion(lock.id, lock.fence, decode_result(sent), tuple(sent.seen))
        for lock, sent in held
    ]
    return [COMPLETED if answer == DONE else answer for answer in await broker.complete_many(items)]


def decode_result(sent: wire.CompleteRequest) -> bytes | None:
    if sent.result_base64 is None and sent.result is UNSET:
        return None
    try:
        return decode_body(sent.result, sent.result_base64)
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("body", "result")) from None


async def extend(broker: Broker, held: Held[wire.ExtendRequest]) -> list[Answer]:
    return await broker.extend_many(
        [Extension(lock.id, lock.fence, sent.lease) for lock, sent in held]
    )


async def begin(broker: Broker, held: Held[wire.BeginRequest]) -> list[Answer]:
    marks = [Mark(lock.id, lock.fence, begin=True) for lock, _ in held]
    return await broker.mark_many(marks)


async def progress(broker: Broker, held: Held[wire.ProgressRequest]) -> list[Answer]:
    marks = [Mark(lock.id, lock.fence, False, sent.percent, read_note(sent)) for lock, sent in held]
    return await broker.mark_many(marks)


def read_note(sent: wire.ProgressRequest) -> str | None:
    return None if sent.note is None else validation.replace_surrogates(sent.note)


def make_settle(settlement: Callable[[Sent], Settlement]) -> Act[Sent]:
    async def act(broker: Broker, held: Held[Sent]) -> list[Answer]:
        return await broker.settle_many([(lock, settlement(sent)) for lock, sent in held])

    return act


def nack(sent: wire.NackRequest) -> Settlement:
    limits = sent.max_attempts, sent.max_total
    return settlements.Nack(sent.error, sent.delay, sent.reason, *limits, sent.traceback)


def fail(sent: wire.FailRequest) -> Settlement:
    return settlements.Fail(sent.error, sent.traceback)


def reject(sent: wire.RejectRequest) -> Settlement:
    return settlements.SettleReject(sent.error, sent.traceback)


def release(_: wire.ReleaseRequest) -> Settlement:
    return settlements.Release()


def park(sent: wire.ParkRequest) -> Settlement:
    return settlements.Park(sent.reason)


def cancel(sent: wire.SettleCancelledRequest) -> Settlement:
    return settlements.SettleCancelled(sent.error)
