"""Nouns: what the broker and a store say to each other about tickets."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from penstock.model.message import FeedMessage, Flag, HistoryRow, Leased, Meta, Moment, State, Verb

# Where a rank is counted from: 0, the moment of publishing, or the moment it is due (both in ms).
Basis = Literal["zero", "created", "due"]


class Dedupe(Struct, frozen=True):
    """A dedup key with its namespace, the digest of the body, and how long it is kept."""

    key: str
    digest: bytes
    window: float | None


class Entry(Struct, frozen=True, gc=False):
    """A draft with its queue's rules applied: what a store writes."""

    queue_id: int
    type: str
    body: bytes
    priority: int = 0
    rank: int = 0
    basis: Basis = "zero"
    delay: float = 0.0
    run_at: Moment | None = None
    ttl: float | None = None
    expires_at: Moment | None = None
    flags: int = 0
    meta: str | None = None
    name: str | None = None
    ordering_key: str | None = None
    dedup: Dedupe | None = None
    max_depth: int | None = None
    overflow: Literal["reject", "dead"] = "reject"

    @property
    def plain(self) -> bool:
        """It can be written without a look at what is stored."""
        looked_up = (self.flags, self.dedup, self.name, self.max_depth)
        return looked_up == (0, None, None, None)

    @property
    def conditional(self) -> bool:
        """A dedup key, a name or a depth decides whether it is written."""
        return (self.dedup, self.name, self.max_depth) != (None, None, None)


class Published(Struct, frozen=True, gc=False):
    """What became of one draft. A refused one has id 0, and a code and a text that say why."""

    id: int
    duplicate: bool = False
    code: str | None = None
    error: str | None = None


class Claim(Struct, frozen=True):
    """Up to `limit` messages for `lease` seconds. Several queues are one line, by rank."""

    queue_ids: tuple[int, ...]
    consumer: str
    limit: int = 1
    lease: float = 30.0
    types: tuple[str, ...] = ()
    # The consumer promises to call begin before it runs a suspect.
    begins: bool = False


class Claimed(Struct, frozen=True):
    """`again`: nothing was handed out, but expired messages were cleared; ask once more."""

    messages: list[Leased]
    again: bool = False


class Lock(Struct, frozen=True, gc=False):
    id: int
    fence: int


class Completion(Struct, frozen=True, gc=False):
    id: int
    fence: int
    result: bytes | None = None


class Extension(Struct, frozen=True, gc=False):
    id: int
    fence: int
    lease: float


class Mark(Struct, frozen=True, gc=False):
    """A note on a lease: work on it begins, or how far it is."""

    id: int
    fence: int
    begin: bool = False
    percent: float | None = None
    note: str | None = None


class Lease(Struct, frozen=True, gc=False):
    """What a rule needs to know of a claimed message. `now` is when it was read."""

    id: int
    fence: int
    queue_id: int
    attempts: int
    deliveries: int
    flags: int
    claimed_at: Moment
    lease_until: Moment
    # Seconds it was asked for, last.
    length: float
    now: Moment
    meta: Meta
    # The first claim since it was published or redriven.
    first_claimed_at: Moment
    # How often it was parked; why it was dead, if it was claimed from the dead letters.
    parked: int = 0
    dead_reason: str | None = None


class Move(Struct, frozen=True):
    """A decision about one lease, while its fence and flags are as the rule saw them."""

    id: int
    fence: int
    seen_flags: int
    verb: Verb
    state: State
    attempts: int
    deliveries: int
    reason: str | None = None
    error: str | None = None
    delay: float = 0.0
    # Its place in line is its due time (ordering ready_time).
    rank_by_due: bool = False
    # A reclaim holds only if the lease had run out by this moment.
    expired_by: Moment | None = None
    traceback: str | None = None

    @property
    def frees(self) -> bool:
        """Its ordering key and its unique key are free after this."""
        return self.state.final or self.state is State.DEAD


class AnswerKind(StrEnum):
    DONE = "done"
    # The same verb with the same fence was done before.
    ALREADY = "already"
    # Another fence holds it, or this one held it once.
    LOST = "lost"
    # Not claimed, or not in a state that allows the verb.
    INVALID = "invalid"
    MISSING = "missing"
    # Somebody's open transaction holds the row.
    BUSY = "busy"
    # A flag changed since the rule looked: decide again.
    CHANGED = "changed"


class Answer(Struct, frozen=True, gc=False):
    kind: AnswerKind
    state: State | None = None
    lease_until: Moment | None = None
    cancel_requested: bool = False


DONE = Answer(AnswerKind.DONE)
MISSING = Answer(AnswerKind.MISSING)


class Sweep(Struct, frozen=True):
    """Leases that had run out at `now`."""

    now: Moment
    leases: list[Lease]


class Promoted(Struct, frozen=True):
    """How many became ready, and when the next one is due."""

    count: int
    now: Moment
    next_at: Moment | None


class Firing(Struct, frozen=True):
    """A schedule's ticks, published only if nobody fired them: `seen_at` was its next tick."""

    schedule_id: int
    seen_at: Moment
    next_at: Moment
    entries: tuple[Entry, ...]


class Retention(Struct, frozen=True):
    """Which ended messages may go: of these queues, ended before a moment, above a position."""

    queue_ids: tuple[int, ...]
    before: Moment
    after: int
    limit: int = 1_000


class Pruned(Struct, frozen=True):
    """`position` is where the next look begins; `more` says whether to look at once."""

    count: int
    position: int
    more: bool


class Cursor(Struct, frozen=True):
    """A final position: nothing will ever appear at or below it."""

    epoch: int = 0
    message: int = 0
    history: int = 0


class Exported(Struct, frozen=True):
    """How far an export has come, and since when it stands there."""

    cursor: Cursor
    advanced_at: Moment


class Feed(Struct, frozen=True):
    """What happened after a cursor, and the cursor after it."""

    messages: list[FeedMessage]
    history: list[HistoryRow]
    cursor: Cursor


class Tally(Struct, frozen=True):
    """Messages of a queue in one place: how many, and a digest of their ids."""

    queue_id: int
    place: str
    count: int
    digest: int


class Query(Struct, frozen=True):
    """Which messages to list. Newest first; `before` is the last id of the page above."""

    queue_ids: tuple[int, ...]
    state: State | None = None
    type: str | None = None
    correlation_id: str | None = None
    before: int | None = None
    limit: int = 50


class AgentRun(Struct, frozen=True):
    """The last run of an agent that had work to do, by whom, and what it did."""

    name: str
    at: Moment
    by: str
    result: str | None


class WorkerInfo(Struct, frozen=True):
    """A process that runs handlers: where it is, since when, and when it last said so."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    started_at: Moment = 0
    seen_at: Moment = 0
    stopping: bool = False


def keep_lasting_flags(flags: int) -> int:
    """What of a ticket's flags outlives its lease."""
    return flags & Flag.LASTING
