"""Wire types of stored messages: state, timeline, cancel, redrive, import."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, field

from penstock.model.explain import Cause, CauseCode
from penstock.model.fields import MAX_BATCH, MAX_WORD_LENGTH, MessageFields, copy_message_fields
from penstock.model.message import HistoryRow, Record, State, Verb
from penstock.model.structs import copy_fields
from penstock.wire.fields import (
    Id,
    Json,
    QueueName,
    Time,
    Word,
    encode_body,
    to_datetime,
    to_optional_datetime,
)
from penstock.wire.publish import Problem

Cursor = Annotated[str, Meta(min_length=1, max_length=MAX_WORD_LENGTH)]


class TimelineEntry(Struct, frozen=True, omit_defaults=True):
    """An ended delivery, expiry, cancel or redrive of a message."""

    at: Time
    verb: Verb
    state: State
    attempts: int
    deliveries: int
    claimed_at: Time | None = None
    due_at: Time | None = None
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    traceback: str | None = None


class MessageView(MessageFields, frozen=True, omit_defaults=True):
    """A message and its current state."""

    id: str
    queue: str
    type: str
    state: State
    priority: int
    attempts: int
    deliveries: int
    created_at: Time
    # Attempts after which the message dies, by its own limit or that of its queue.
    attempt_limit: int | None = None
    body: Json = UNSET
    body_base64: str | None = None
    reason: str | None = None
    error: str | None = None
    run_at: Time | None = None
    due_at: Time | None = None
    expires_at: Time | None = None
    deadline: Time | None = None
    lease_until: Time | None = None
    # When the message ended or died.
    ended_at: Time | None = None
    consumer: str | None = None
    claimed_at: Time | None = None
    begun_at: Time | None = None
    # The message that holds the ordering key this one waits for.
    blocked_by: str | None = None
    cancel_requested: bool = False
    percent: float | None = None
    note: str | None = None
    redrives: int = 0
    dedup_key: str | None = None
    parent_id: str | None = None
    callback: str | None = None
    # The rules that it and its ancestors passed, as `name@version`.
    path: list[str] = field(default_factory=list)
    # The subject that published it, or the first of its ancestors.
    publisher: str | None = None
    timeline: list[TimelineEntry] = field(default_factory=list)
    # Fields whose values are hidden from this caller.
    masked: list[str] = field(default_factory=list)


class MessagePage(Struct, frozen=True, omit_defaults=True):
    """Newest first. `cursor` fetches the next page; the last page has none.

    With a filter, a page may have few messages or none although there are more: `scanned_to` is
    when the last message that was read was created.
    """

    messages: list[MessageView]
    cursor: str | None = None
    scanned_to: Time | None = None


class CancelRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A running message is asked to stop. `force` revokes its lock immediately. `tree` also cancels
    the unfinished messages that its steps published, and theirs."""

    force: bool = False
    tree: bool = False


class CancelResponse(Struct, frozen=True, omit_defaults=True):
    """With `tree`, `children` counts the messages below it that were cancelled or asked to stop."""

    id: str
    state: State
    cancel_requested: bool
    children: int | None = None


class RedriveRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """With a body, a new message with that body replaces the old one. With `from_step`, the steps
    from the first one of that name on are forgotten and run again."""

    body: Json = UNSET
    body_base64: str | None = None
    from_step: str | None = None


class RedriveResponse(Struct, frozen=True):
    """The id of the redriven message."""

    id: str


class RedriveFilter(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Selects messages by `ids`, or by state and filter. Filtered messages are redriven newest
    first, at most `limit` and `rate` per second. `cursor` continues where a response ended."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_BATCH)] | None = None
    state: Literal["dead", "failed", "expired", "cancelled", "completed"] = "dead"
    queue: QueueName | None = None
    type: Word | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = MAX_BATCH
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    cursor: Cursor | None = None


class RedriveOutcome(Struct, frozen=True, omit_defaults=True):
    """`new_id` is set if the message continues under a new id."""

    id: str
    new_id: str | None = None
    error: Problem | None = None


class RedriveOutcomes(Struct, frozen=True, omit_defaults=True):
    items: list[RedriveOutcome]
    redriven: int
    refused: int
    cursor: str | None = None


class Imported(Struct, frozen=True):
    """The number of published, refused and skipped lines, and the first errors.

    Exported messages are skipped if their state was not asked for.
    """

    published: int
    refused: int
    errors: list[Problem]
    skipped: int = 0


def make_timeline_entry(row: HistoryRow) -> TimelineEntry:
    return copy_fields(
        TimelineEntry,
        row,
        at=to_datetime(row.at),
        claimed_at=to_optional_datetime(row.claimed_at),
        due_at=to_optional_datetime(row.due_at),
    )


def find_end(record: Record) -> datetime | None:
    has_ended = record.state.final or record.state is State.DEAD
    return to_datetime(record.timeline[-1].at) if has_ended and record.timeline else None


def make_message_view(
    record: Record, queue: str, masked: Sequence[str] = (), *, timeline: bool = False
) -> MessageView:
    message, meta = record.message, record.message.meta
    body, base64 = encode_body(message.body)
    return copy_fields(
        MessageView,
        record,
        redrives=record.redrives,
        id=str(message.id),
        queue=queue,
        type=message.type,
        priority=message.priority,
        created_at=to_datetime(message.created_at),
        body=body,
        body_base64=base64,
        run_at=to_optional_datetime(record.run_at),
        due_at=to_optional_datetime(record.due_at),
        expires_at=to_optional_datetime(record.expires_at),
        lease_until=to_optional_datetime(record.lease_until),
        ended_at=find_end(record),
        claimed_at=to_optional_datetime(record.claimed_at),
        begun_at=to_optional_datetime(record.begun_at),
        blocked_by=None if record.blocked_by is None else str(record.blocked_by),
        timeline=[make_timeline_entry(row) for row in record.timeline] if timeline else [],
        masked=list(masked),
        deadline=to_optional_datetime(meta.deadline),
        dedup_key=meta.dedup,
        parent_id=None if meta.parent_id is None else str(meta.parent_id),
        callback=meta.callback,
        path=list(meta.path),
        publisher=meta.publisher,
        **copy_message_fields(meta),
    )


class MessageCount(Struct, frozen=True):
    """`exact` is false if there may be more."""

    count: int
    exact: bool


class CauseView(Struct, frozen=True):
    """One reason why a message does not run, and what would change it."""

    code: CauseCode
    text: str
    remedy: str
    evidence: dict[str, str | int | float | None]


class Explanation(Struct, frozen=True):
    """The causes, the one to act on first."""

    causes: list[CauseView]


def make_explanation(causes: list[Cause]) -> Explanation:
    return Explanation(
        [CauseView(each.code, each.text, each.remedy, each.evidence) for each in causes]
    )
