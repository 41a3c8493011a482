"""Wire types of activity and traces."""

from msgspec import Struct
from msgspec.structs import asdict

from penstock.model.activity import ActivityEntry, ActivityFacts
from penstock.wire.fields import Time, to_datetime, to_moment
from penstock.wire.records import MessageView


class ActivityView(ActivityFacts, frozen=True, omit_defaults=True, kw_only=True):
    """Something that happened to a message, or an entry of the audit log (kind `act`)."""

    at: Time
    position: str
    id: str | None = None


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
    first. `complete` is false if there are more than 1,000 messages or audit entries."""

    correlation_id: str
    messages: list[TracedMessageView]
    events: list[ActivityView]
    complete: bool


def make_activity_view(entry: ActivityEntry) -> ActivityView:
    id = None if entry.id is None else str(entry.id)
    changed = {"at": to_datetime(entry.at), "position": str(entry.position), "id": id}
    return ActivityView(**asdict(entry) | changed)


def make_activity_entry(view: ActivityView) -> ActivityEntry:
    id = None if view.id is None else int(view.id)
    changed = {"at": to_moment(view.at), "position": int(view.position), "id": id}
    return ActivityEntry(**asdict(view) | changed)
