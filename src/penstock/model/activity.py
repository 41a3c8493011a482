"""Leases, headings, activity and traces."""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.model.message import Moment, Record

Source: TypeAlias = Literal["message", "audit", "history"]
SOURCES: tuple[Source, ...] = ("message", "audit", "history")


class HeldLease(Struct, frozen=True, gc=False):
    """The lease of a claimed message."""

    id: int
    fence: int
    queue_id: int
    consumer: str
    attempts: int
    claimed_at: Moment
    lease_until: Moment


class Heading(Struct, frozen=True, gc=False):
    """The type and correlation id of a message."""

    type: str
    correlation_id: str | None = None
    queue_id: int = 0


class ActivityFacts(Struct, frozen=True, kw_only=True):
    """An entry of the activity, without its time and numbers."""

    source: Source
    kind: str
    scope: str = ""
    queue: str = ""
    type: str | None = None
    state: str | None = None
    attempts: int | None = None
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    correlation_id: str | None = None
    # An act: who did what to what.
    subject: str | None = None
    verb: str | None = None
    target: str | None = None
    detail: str | None = None
    request_id: str | None = None


class ActivityEntry(ActivityFacts, frozen=True, kw_only=True):
    """Something that happened to a message, or an act of a caller.

    Entries are ordered by `at`, `source` and `position`. `kind` is that of the live event, or
    `act` for an entry of the audit log.
    """

    at: Moment
    position: int
    id: int | None = None

    @property
    def order(self) -> tuple[Moment, int, int, bool]:
        """Sorts entries of one moment: messages, then acts, then history. Claims precede ends."""
        is_claim = self.kind == "message.claimed"
        return self.at, SOURCES.index(self.source), self.position, not is_claim


class ActivityPage(Struct, frozen=True):
    """Newest first. `cursor` continues; without one, everything was read."""

    entries: list[ActivityEntry]
    cursor: str | None = None
    # When the last entry that was read happened, whether it matched or not.
    scanned_to: Moment | None = None


class TracedMessage(Struct, frozen=True):
    """A message of a trace, without its body. `parent` caused it, and is `depth` - 1 deep."""

    record: Record
    scope: str
    queue: str
    depth: int = 0
    parent: int | None = None


class Trace(Struct, frozen=True):
    """The messages of a correlation id as a tree, and everything that happened, oldest first."""

    correlation_id: str
    messages: list[TracedMessage]
    events: list[ActivityEntry]
    # False if there are more messages or acts than were read.
    complete: bool = True
