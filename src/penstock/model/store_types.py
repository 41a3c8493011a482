"""Requests to a store and its answers, about tickets, leases and exports."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from penstock.model.message import After, FeedMessage, HistoryRow, Leased, Meta, Moment, State, Verb
from penstock.model.queue import Queue
from penstock.model.units import Unit

# The origin of a rank: 0, the time of publishing, or the due time (both in milliseconds).
Basis = Literal["zero", "created", "due"]


class Dedupe(Struct, frozen=True):
    """A dedup key with its namespace, the digest of the body, and its lifetime."""

    key: str
    digest: bytes
    window: float | None


class Entry(Struct, frozen=True, gc=False):
    """A draft with its queue's rules applied, as a store writes it."""

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
    unit: Unit | None = None
    # The holds before its first delivery. Its flags include HELD.
    after: After | None = None

    @property
    def plain(self) -> bool:
        """True if it can be written without reading stored state."""
        return self.flags == 0 and not self.conditional

    @property
    def conditional(self) -> bool:
        """True if stored state decides whether or how it is written."""
        return (self.dedup, self.name, self.max_depth, self.unit) != (None, None, None, None)

    @property
    def keys_queue_id(self) -> int:
        """The queue that its dedup key and its name belong to."""
        return self.queue_id if self.unit is None else self.unit.addressed_to or self.queue_id


class Published(Struct, frozen=True, gc=False):
    """The outcome of one draft. A refused one has id 0, an error code and a message."""

    id: int
    duplicate: bool = False
    code: str | None = None
    error: str | None = None
    # The queues that rules sent it to, if they did.
    routed: tuple[str, ...] = ()


class Claim(Struct, frozen=True):
    """Requests up to `limit` messages for `lease` seconds, from several queues by rank."""

    queue_ids: tuple[int, ...]
    consumer: str
    limit: int = 1
    lease: float = 30.0
    types: tuple[str, ...] = ()
    # The consumer calls begin before it runs a suspect.
    begins: bool = False


class Claimed(Struct, frozen=True):
    """Claimed messages. `again` means that only expired ones were cleared: claim again."""

    messages: list[Leased]
    again: bool = False


class Lock(Struct, frozen=True, gc=False):
    id: int
    fence: int


class Completion(Struct, frozen=True, gc=False):
    id: int
    fence: int
    result: bytes | None = None
    seen: tuple[str, ...] = ()


class Extension(Struct, frozen=True, gc=False):
    id: int
    fence: int
    lease: float


class Mark(Struct, frozen=True, gc=False):
    """An update of a lease: the run began, or its progress."""

    id: int
    fence: int
    begin: bool = False
    percent: float | None = None
    note: str | None = None


class Lease(Struct, frozen=True, gc=False):
    """The state of a claimed message that rules decide on. `now` is when it was read."""

    id: int
    fence: int
    queue_id: int
    attempts: int
    deliveries: int
    flags: int
    claimed_at: Moment
    lease_until: Moment
    # The duration in seconds that was last requested.
    length: float
    now: Moment
    meta: Meta
    # The first claim since it was published or redriven.
    first_claimed_at: Moment
    # How often it was parked, and why it was dead if it was claimed from the dead letters.
    parked: int = 0
    dead_reason: str | None = None


class Move(Struct, frozen=True):
    """A decision about one lease. It applies only if fence and flags are unchanged."""

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
    # Ranks the message by its due time (ordering ready_time).
    rank_by_due: bool = False
    # A reclaim applies only if the lease had expired by this moment.
    expired_by: Moment | None = None
    traceback: str | None = None

    @property
    def frees(self) -> bool:
        """True if it frees the ordering key and the unique key."""
        return self.state.final or self.state is State.DEAD


class AnswerKind(StrEnum):
    DONE = "done"
    # The same verb with the same fence succeeded before.
    ALREADY = "already"
    # Another fence holds the message, or this fence no longer does.
    LOST = "lost"
    # The state of the message does not allow the verb.
    INVALID = "invalid"
    MISSING = "missing"
    BUSY = "busy"  # The row is locked by another transaction.
    # A flag changed since the rule decided: decide again.
    CHANGED = "changed"


class Answer(Struct, frozen=True, gc=False):
    kind: AnswerKind
    state: State | None = None
    lease_until: Moment | None = None
    cancel_requested: bool = False
    delay: float | None = None
    due_at: Moment | None = None


DONE, MISSING = Answer(AnswerKind.DONE), Answer(AnswerKind.MISSING)


class Sweep(Struct, frozen=True):
    """Leases that had expired at `now`."""

    now: Moment
    leases: list[Lease]


class Promoted(Struct, frozen=True):
    """The number of messages that became ready, and when the next one is due."""

    count: int
    now: Moment
    next_at: Moment | None


class Firing(Struct, frozen=True):
    """The due ticks of a schedule, published only if `seen_at` is still its next tick."""

    schedule_id: int
    seen_at: Moment
    next_at: Moment
    entries: tuple[Entry, ...]


class Retention(Struct, frozen=True):
    """Selects finished messages to prune: by queue, end before a moment, above a position."""

    queue_ids: tuple[int, ...]
    before: Moment
    after: int
    limit: int = 1_000
    max_messages: int = 1_000_000


class Pruned(Struct, frozen=True):
    """The result of a prune. `position` is where the next one starts, `more` if there is more."""

    count: int
    position: int
    more: bool


class Cursor(Struct, frozen=True):
    """A final position in the feed: nothing new appears at or below it."""

    epoch: int = 0
    message: int = 0
    history: int = 0


class Exported(Struct, frozen=True):
    """The cursor of an export, and when it last advanced."""

    cursor: Cursor
    advanced_at: Moment


class Feed(Struct, frozen=True):
    """Messages and history after a cursor, and the next cursor."""

    messages: list[FeedMessage]
    history: list[HistoryRow]
    cursor: Cursor


class PlaceCount(Struct, frozen=True):
    """The count of a queue's messages in one place, and a digest of their ids."""

    queue_id: int
    place: str
    count: int
    digest: int


class Query(Struct, frozen=True):
    """Lists messages, newest first, or oldest first `after` the last id of the previous page."""

    queue_ids: tuple[int, ...]
    state: State | None = None
    type: str | None = None
    correlation_id: str | None = None
    before: int | None = None
    limit: int = 50
    after: int | None = None


class AgentRun(Struct, frozen=True):
    """The last run of an agent that had work to do: which process ran it, and its result."""

    name: str
    at: Moment
    by: str
    result: str | None


class WorkerInfo(Struct, frozen=True):
    """A registered worker process. `seen_at` is its last heartbeat."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    started_at: Moment = 0
    seen_at: Moment = 0
    stopping: bool = False
    # Maps queues to the types that it runs; all without an entry. Slots are 0 if unknown.
    types: dict[str, tuple[str, ...]] = {}
    slots: int = 0
    version: str = ""
    # Where its queues are.
    scope: str = "default"
    tenant: str = "default"

    def serves(self, queue: Queue) -> bool:
        place = (queue.scope.tenant, queue.scope.name)
        return queue.name in self.queues and (self.tenant, self.scope) == place


class Diagnosis(Struct, frozen=True):
    """Counts the ready messages before one, up to a limit, and the claimed ones of its queue."""

    ahead: int = 0
    claimed: int = 0
