"""Maps wire types to the types of the broker."""

from penstock.model.message import HistoryRow, Leased, Meta, Record, State, StoredMessage
from penstock.model.queue import Queue, Schedule, Scope
from penstock.model.store_types import Answer, AnswerKind, Published, WorkerInfo
from penstock.wire.consume import Delivery, SettleOutcome
from penstock.wire.fields import decode_body, to_moment, to_optional_moment
from penstock.wire.publish import PublishOutcome, make_draft
from penstock.wire.queues import QueueView, ScheduleView, WorkerView
from penstock.wire.records import MessageView, TimelineEntry

KINDS = {
    "ALREADY_SETTLED": AnswerKind.ALREADY,
    "LOCK_LOST": AnswerKind.LOST,
    "INVALID_STATE": AnswerKind.INVALID,
    "NOT_FOUND": AnswerKind.MISSING,
    "BUSY": AnswerKind.BUSY,
    # A token unknown to the server belongs to no message of it.
    "INVALID_TOKEN": AnswerKind.MISSING,
    "FORBIDDEN": AnswerKind.LOST,
}


class FenceLedger:
    """Assigns local queue ids, which the wire lacks, and keeps the lock tokens of unsettled
    messages, by id and fence."""

    def __init__(self) -> None:
        self.of_name: dict[tuple[str, str], int] = {}
        self.tokens: dict[tuple[int, int], str] = {}

    def assign_number(self, scope: str, queue: str) -> int:
        return self.of_name.setdefault((scope, queue), len(self.of_name) + 1)


def make_published(outcome: PublishOutcome) -> Published:
    if outcome.error is not None:
        return Published(0, code=outcome.error.code, error=outcome.error.message)
    return Published(int(outcome.id or 0), outcome.duplicate)


def make_answer(outcome: SettleOutcome) -> Answer:
    state = None if outcome.state is None else State(outcome.state)
    if outcome.error is not None:
        return Answer(KINDS.get(outcome.error.code, AnswerKind.INVALID), state)
    until = outcome.lease_until
    moment = to_moment(until) if until else None
    return Answer(AnswerKind.DONE, state, moment, outcome.cancel_requested)


def make_leased(told: Delivery, queue_id: int) -> Leased:
    return Leased(
        int(told.id),
        queue_id,
        told.type,
        told.priority,
        to_moment(told.created_at),
        decode_body(told.body, told.body_base64),
        make_meta(told),
        told.fence,
        told.attempts,
        told.deliveries,
        to_moment(told.lease_until),
        0,
    )


def make_meta(told: Delivery | MessageView) -> Meta:
    return Meta(
        name=told.name,
        headers=told.headers,
        labels=told.labels,
        content_type=told.content_type,
        deadline=to_optional_moment(told.deadline),
        lease=told.lease,
        timeout=told.timeout,
        max_attempts=told.max_attempts,
        max_deliveries=told.max_deliveries,
        ordering_key=told.ordering_key,
        correlation_id=told.correlation_id,
        causation_id=told.causation_id,
        parent_id=None if told.parent_id is None else int(told.parent_id),
        traceparent=told.traceparent,
        callback=told.callback if isinstance(told, MessageView) else None,
    )


def make_record(told: MessageView, queue_id: int) -> Record:
    id = int(told.id)
    message = StoredMessage(
        id,
        queue_id,
        told.type,
        told.priority,
        to_moment(told.created_at),
        decode_body(told.body, told.body_base64),
        make_meta(told),
    )
    return Record(
        message,
        told.state,
        told.attempts,
        told.deliveries,
        told.reason,
        told.error,
        to_optional_moment(told.run_at),
        to_optional_moment(told.expires_at),
        to_optional_moment(told.due_at),
        to_optional_moment(told.lease_until),
        told.consumer,
        told.cancel_requested,
        told.percent,
        told.note,
        tuple(make_history_row(step, id, queue_id, n) for n, step in enumerate(told.timeline, 1)),
        to_optional_moment(told.claimed_at),
        to_optional_moment(told.begun_at),
    )


def make_history_row(step: TimelineEntry, id: int, queue_id: int, position: int) -> HistoryRow:
    """`position` is the index in the timeline, because the wire lacks the store's position."""
    return HistoryRow(
        position,
        id,
        queue_id,
        step.verb,
        step.state,
        step.reason,
        step.error,
        step.attempts,
        step.deliveries,
        step.consumer,
        None,
        to_optional_moment(step.claimed_at),
        to_moment(step.at),
        to_optional_moment(step.due_at),
        step.state.final,
        step.traceback,
    )


def make_queue(told: QueueView, number: int) -> Queue:
    scope = Scope(0, "default", told.scope)
    return Queue(number, scope, told.name, told.state, told.settings)


def make_schedule(told: ScheduleView, queue_id: int) -> Schedule:
    return Schedule(
        told.name,
        told.cron,
        make_draft(told.message),
        told.timezone,
        told.missed,
        told.paused,
        queue_id=queue_id,
        next_at=to_optional_moment(told.next_at) or 0,
        last_at=to_optional_moment(told.last_at),
    )


def make_worker_info(told: WorkerView) -> WorkerInfo:
    return WorkerInfo(
        told.id,
        told.host,
        told.pid,
        tuple(told.queues),
        to_moment(told.started_at),
        to_moment(told.seen_at),
        told.state == "stopping",
    )
