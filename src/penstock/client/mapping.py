"""Maps wire types to the types of the broker."""

from penstock.model.fields import copy_message_fields
from penstock.model.message import Flag, HistoryRow, Leased, Meta, Record, State, StoredMessage
from penstock.model.queue import Queue, Schedule, Scope
from penstock.model.store_types import Answer, AnswerKind, Published, WorkerInfo
from penstock.model.structs import copy_fields
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
    return Published(int(outcome.id or 0), outcome.duplicate, routed=tuple(outcome.routed))


def make_answer(outcome: SettleOutcome) -> Answer:
    state = None if outcome.state is None else State(outcome.state)
    if outcome.error is not None:
        return Answer(KINDS.get(outcome.error.code, AnswerKind.INVALID), state)
    until = outcome.lease_until
    moment = to_moment(until) if until else None
    due_at = to_optional_moment(outcome.due_at)
    return Answer(AnswerKind.DONE, state, moment, outcome.cancel_requested, outcome.delay, due_at)


def make_leased(delivery: Delivery, queue_id: int) -> Leased:
    return Leased(
        id=int(delivery.id),
        queue_id=queue_id,
        type=delivery.type,
        priority=delivery.priority,
        created_at=to_moment(delivery.created_at),
        body=decode_body(delivery.body, delivery.body_base64),
        meta=make_meta(delivery),
        fence=delivery.fence,
        attempts=delivery.attempts,
        deliveries=delivery.deliveries,
        lease_until=to_moment(delivery.lease_until),
        flags=Flag.STEPS if delivery.has_steps else 0,
    )


def make_meta(view: Delivery | MessageView) -> Meta:
    return Meta(
        deadline=to_optional_moment(view.deadline),
        parent_id=None if view.parent_id is None else int(view.parent_id),
        path=tuple(view.path) if isinstance(view, MessageView) else (),
        callback=view.callback if isinstance(view, MessageView) else None,
        publisher=view.publisher if isinstance(view, MessageView) else None,
        **copy_message_fields(view),
    )


def make_record(view: MessageView, queue_id: int) -> Record:
    id = int(view.id)
    message = StoredMessage(
        id=id,
        queue_id=queue_id,
        type=view.type,
        priority=view.priority,
        created_at=to_moment(view.created_at),
        body=decode_body(view.body, view.body_base64),
        meta=make_meta(view),
    )
    timeline = [make_history_row(step, id, queue_id, n) for n, step in enumerate(view.timeline, 1)]
    return copy_fields(
        Record,
        view,
        message=message,
        run_at=to_optional_moment(view.run_at),
        expires_at=to_optional_moment(view.expires_at),
        due_at=to_optional_moment(view.due_at),
        lease_until=to_optional_moment(view.lease_until),
        timeline=tuple(timeline),
        claimed_at=to_optional_moment(view.claimed_at),
        begun_at=to_optional_moment(view.begun_at),
        blocked_by=None if view.blocked_by is None else int(view.blocked_by),
    )


def make_history_row(step: TimelineEntry, id: int, queue_id: int, position: int) -> HistoryRow:
    """`position` is the index in the timeline, because the wire lacks the store's position."""
    return copy_fields(
        HistoryRow,
        step,
        position=position,
        id=id,
        queue_id=queue_id,
        fence=None,
        claimed_at=to_optional_moment(step.claimed_at),
        at=to_moment(step.at),
        due_at=to_optional_moment(step.due_at),
        final=step.state.final,
    )


def make_queue(view: QueueView, number: int) -> Queue:
    scope = Scope(0, "default", view.scope)
    return Queue(number, scope, view.name, view.state, view.settings)


def make_schedule(view: ScheduleView, queue_id: int) -> Schedule:
    return copy_fields(
        Schedule,
        view,
        draft=make_draft(view.message),
        queue_id=queue_id,
        next_at=to_optional_moment(view.next_at) or 0,
        last_at=to_optional_moment(view.last_at),
    )


def make_worker_info(view: WorkerView) -> WorkerInfo:
    return copy_fields(
        WorkerInfo,
        view,
        queues=tuple(view.queues),
        started_at=to_moment(view.started_at),
        seen_at=to_moment(view.seen_at),
        stopping=view.state == "stopping",
        types={queue: tuple(types) for queue, types in view.types.items()},
    )
