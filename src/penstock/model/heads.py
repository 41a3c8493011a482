"""The feed without bodies: message heads, history, and where each message rested before."""

from msgspec import Struct

from penstock.model.message import HistoryRow, Moment, State, Verb
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


class Rest(Struct, frozen=True, gc=False):
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
    rests: dict[int, list[Rest]]
    cursor: Cursor
