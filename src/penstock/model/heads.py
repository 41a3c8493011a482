"""The feed without bodies: message heads, history, and where each message rested before.

A digest is the same with most rows in groups, for what only counts.
"""

from collections.abc import Sequence

from msgspec import Struct

from penstock.model.message import NEVER, HistoryRow, Moment, State, Verb
from penstock.model.store_types import Cursor


class FeedHead(Struct, frozen=True, gc=False):
    """A message without its body. `run_at` is None if it was ready at once."""

    id: int
    queue_id: int
    type: str
    created_at: Moment
    run_at: Moment | None
    # Size of the body in bytes.
    size: int
    max_attempts: int | None = None
    lease: float | None = None


class EarlierRow(Struct, frozen=True, gc=False):
    """An earlier row of a message that did not end it."""

    position: int
    verb: Verb
    state: State
    error: str | None
    consumer: str | None
    at: Moment
    due_at: Moment | None

    @property
    def ready_at(self) -> Moment:
        return self.at if self.due_at is None else self.due_at


class HeadFeed(Struct, frozen=True):
    """A page of the final feed without bodies.

    `heads` has the message of each history row, unless retention removed it, and `rests` its
    rows that did not end it, also those of this page.
    """

    messages: list[FeedHead]
    history: list[HistoryRow]
    heads: dict[int, FeedHead]
    rests: dict[int, list[EarlierRow]]
    cursor: Cursor


class DigestBounds(Struct, frozen=True):
    """Rows that a digest gives one by one: longer runs, larger messages, and whole queues."""

    # Microseconds and bytes.
    run: int = NEVER
    size: int = NEVER
    whole: tuple[int, ...] = ()


class FirstRuns(Struct, frozen=True, gc=False):
    """Messages of one queue, type, minute and consumer that were completed and never rested before.

    The durations are sorted microseconds.
    """

    queue_id: int
    type: str
    minute: int
    consumer: str | None
    first_claimed_at: Moment
    last_at: Moment
    runs: list[int]
    waits: list[int]


class FeedDigest(Struct, frozen=True):
    """A page of the final feed for what only counts: most of its rows are in groups.

    `published` has the id, queue, type and time of each message, `rest` the history rows that are
    in no group, and `position` is the highest of all rows, or 0. Messages with a lease of their own
    are never in a group.
    """

    published: Sequence[tuple[int, int, str, Moment]]
    groups: Sequence[FirstRuns]
    rest: HeadFeed
    position: int

    @property
    def cursor(self) -> Cursor:
        return self.rest.cursor

    @property
    def count(self) -> int:
        grouped = sum(len(group.runs) for group in self.groups)
        return len(self.published) + grouped + len(self.rest.history)
