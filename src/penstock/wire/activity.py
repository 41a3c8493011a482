"""Wire types of activity and traces."""

from msgspec import Struct

from penstock.model.activity import ActivityEntry, Source
from penstock.wire.fields import Time, to_datetime, to_moment
from penstock.wire.records import MessageView


class ActivityView(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that happened to a message, or an act of the audit log (kind `act`)."""

    at: Time
    source: Source
    position: str
    kind: str
    scope: str = ""
    queue: str = ""
    id: str | None = None
    type: str | None = None
    state: str | None = None
    attempts: int | None = None
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    verb: str | None = None
    target: str | None = None
    detail: str | None = None
    request_id: str | None = None


class ActivityPageView(Struct, frozen=True, omit_defaults=True):
    """Newest first. A page may have few entries or none although there are more: the list ends
    when a page has no cursor. `scanned_to` is when the last entry that was read happened."""

    entries: list[ActivityView]
    cursor: str | None = None
    scanned_to: Time | None = None


class FilterCompletion(Struct, frozen=True):
    """Texts that may replace the filter from `start` to the position."""

    start: int
    items: list[str]


class TracedMessageView(Struct, frozen=True, omit_defaults=True):
    """A message of a trace, without its body. `parent` caused it."""

    message: MessageView
    scope: str
    depth: int
    parent: str | None = None


class TraceView(Struct, frozen=True):
    """The messages of a correlation id as a tree in order, and everything that happened, oldest
    first. `complete` is false if there are more than 1,000 messages or acts."""

    correlation_id: str
    messages: list[TracedMessageView]
    events: list[ActivityView]
    complete: bool


def make_activity_view(entry: ActivityEntry) -> ActivityView:
    return ActivityView(
        at=to_datetime(entry.at),
        source=entry.source,
        position=str(entry.position),
        kind=entry.kind,
        scope=entry.scope,
        queue=entry.queue,
        id=None if entry.id is None else str(entry.id),
        type=entry.type,
        state=entry.state,
        attempts=entry.attempts,
        consumer=entry.consumer,
        reason=entry.reason,
        error=entry.error,
        correlation_id=entry.correlation_id,
        subject=entry.subject,
        verb=entry.verb,
        target=entry.target,
        detail=entry.detail,
        request_id=entry.request_id,
    )


def make_activity_entry(view: ActivityView) -> ActivityEntry:
    return ActivityEntry(
        at=to_moment(view.at),
        source=view.source,
        position=int(view.position),
        kind=view.kind,
        scope=view.scope,
        queue=view.queue,
        id=None if view.id is None else int(view.id),
        type=view.type,
        state=view.state,
        attempts=view.attempts,
        consumer=view.consumer,
        reason=view.reason,
        error=view.error,
        correlation_id=view.correlation_id,
        subject=view.subject,
        verb=view.verb,
        target=view.target,
        detail=view.detail,
        request_id=view.request_id,
    )
