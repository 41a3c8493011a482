"""Nouns of the wire as the nouns of the broker."""

from penstock.message import HistoryRow, Leased, Message, Meta, Record, State
from penstock.queue import Queue, Schedule, Scope
from penstock.ticket import Answer, AnswerKind, Published, Working
from penstock.wire.consume import Delivery, SettleOutcome
from penstock.wire.places import QueueTold, ScheduleTold, WorkerTold
from penstock.wire.publish import PublishOutcome, draft_of
from penstock.wire.records import Step, Stored
from penstock.wire.texts import body_of, moment_at, moment_of

KINDS = {
    "ALREADY_SETTLED": AnswerKind.ALREADY,
    "LOCK_LOST": AnswerKind.LOST,
    "INVALID_STATE": AnswerKind.INVALID,
    "NOT_FOUND": AnswerKind.MISSING,
    "BUSY": AnswerKind.BUSY,
    # A token that the server does not know is of no message it has.
    "INVALID_TOKEN": AnswerKind.MISSING,
    "FORBIDDEN": AnswerKind.LOST,
}


class Ledger:
    """What the broker's nouns want and the wire does not say, and the other way round: numbers of
    queues, and the lock tokens of what was claimed and is not settled yet, by id and fence."""

    def __init__(self) -> None:
        self.of_name: dict[tuple[str, str], int] = {}
        self.tokens: dict[tuple[int, int], str] = {}

    def number(self, scope: str, queue: str) -> int:
        return self.of_name.setdefault((scope, queue), len(self.of_name) + 1)


def published_of(outcome: PublishOutcome) -> Published:
    if outcome.error is not None:
        return Published(0, code=outcome.error.code, error=outcome.error.message)
    return Published(int(outcome.id or 0), outcome.duplicate)


def answer_of(outcome: SettleOutcome) -> Answer:
    state = None if outcome.state is None else State(outcome.state)
    if outcome.error is not None:
        return Answer(KINDS.get(outcome.error.code, AnswerKind.INVALID), state)
    until = outcome.lease_until
    moment = moment_at(until) if until else None
    return Answer(AnswerKind.DONE, state, moment, outcome.cancel_requested)


def leased_of(told: Delivery, queue_id: int) -> Leased:
    return Leased(
        int(told.id),
        queue_id,
        told.type,
        told.priority,
        moment_at(told.created_at),
        body_of(told.body, told.body_base64),
        meta_of(told),
        told.fence,
        told.attempts,
        told.deliveries,
        moment_at(told.lease_until),
        0,
    )


def meta_of(told: Delivery | Stored) -> Meta:
    return Meta(
        name=told.name,
        headers=told.headers,
        labels=told.labels,
        content_type=told.content_type,
        deadline=moment_of(told.deadline),
        lease=told.lease,
        timeout=told.timeout,
        max_attempts=told.max_attempts,
        max_deliveries=told.max_deliveries,
        ordering_key=told.ordering_key,
        correlation_id=told.correlation_id,
        causation_id=told.causation_id,
        parent_id=None if told.parent_id is None else int(told.parent_id),
        traceparent=told.traceparent,
        callback=told.callback if isinstance(told, Stored) else None,
    )


def record_of(told: Stored, queue_id: int) -> Record:
    id = int(told.id)
    message = Message(
        id,
        queue_id,
        told.type,
        told.priority,
        moment_at(told.created_at),
        body_of(told.body, told.body_base64),
        meta_of(told),
    )
    return Record(
        message,
        told.state,
        told.attempts,
        told.deliveries,
        told.reason,
        told.error,
        moment_of(told.run_at),
        moment_of(told.expires_at),
        moment_of(told.due_at),
        moment_of(told.lease_until),
        told.consumer,
        told.cancel_requested,
        told.percent,
        told.note,
        tuple(row_of(step, id, queue_id, n) for n, step in enumerate(told.timeline, 1)),
        moment_of(told.claimed_at),
        moment_of(told.begun_at),
    )


def row_of(step: Step, id: int, queue_id: int, position: int) -> HistoryRow:
    """The position is the one in this story: the store's own is not told."""
    return HistoryRow(
        position, id, queue_id, step.verb, step.state, step.reason, step.error, step.attempts,
        step.deliveries, step.consumer, None, moment_of(step.claimed_at), moment_at(step.at),
        moment_of(step.due_at), step.state.final, step.traceback,
    )  # fmt: skip


def queue_of(told: QueueTold, number: int) -> Queue:
    scope = Scope(0, "default", told.scope)
    return Queue(number, scope, told.name, told.state, told.settings)


def schedule_of(told: ScheduleTold, queue_id: int) -> Schedule:
    return Schedule(
        told.name,
        told.cron,
        draft_of(told.message),
        told.timezone,
        told.missed,
        told.paused,
        queue_id=queue_id,
        next_at=moment_of(told.next_at) or 0,
        last_at=moment_of(told.last_at),
    )


def working_of(told: WorkerTold) -> Working:
    return Working(
        told.id,
        told.host,
        told.pid,
        tuple(told.queues),
        moment_at(told.started_at),
        moment_at(told.seen_at),
        told.state == "stopping",
    )
