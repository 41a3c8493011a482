"""A message as it is published, claimed, settled and kept in history."""

from enum import StrEnum
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from penstock.model.fields import MAX_MOMENT, MessageFields

# Microseconds since the Unix epoch, by the store's clock.
Moment: TypeAlias = int
NEVER: Moment = MAX_MOMENT + 1
MICROS_PER_SECOND = 1_000_000
# Beyond every id, position and moment.
MAX_POSITION = 2**62
# Rows may commit in another order than their times.
CLOCK_SLACK_MICROS = 600 * MICROS_PER_SECOND


class State(StrEnum):
    SCHEDULED = "scheduled"
    READY = "ready"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({State.COMPLETED, State.FAILED, State.EXPIRED, State.CANCELLED})

# Where a store keeps a message that is not finished.
TicketPlace: TypeAlias = Literal["ready", "scheduled", "lease", "dead"]
TICKET_PLACES: tuple[TicketPlace, ...] = ("ready", "scheduled", "lease", "dead")
PLACE_STATES: dict[str, State] = {
    "ready": State.READY,
    "scheduled": State.SCHEDULED,
    "lease": State.CLAIMED,
    "dead": State.DEAD,
}


class Verb(StrEnum):
    """An operation on a message. A history row has the verb and the state it led to."""

    PUBLISH = "publish"
    COMPLETE = "complete"
    FAIL = "fail"
    NACK = "nack"
    REJECT = "reject"
    RELEASE = "release"
    PARK = "park"
    RECLAIM = "reclaim"
    CANCEL = "cancel"
    EXPIRE = "expire"
    REDRIVE = "redrive"
    WAIT = "wait"
    DECIDE = "decide"


class Flag:
    """Bit flags of a ticket. An unused feature costs nothing."""

    KEYED = 1
    UNIQUE = 2
    # Claimed by a consumer that calls begin before it runs, and has not done so yet.
    UNBEGUN = 4
    CANCEL_REQUESTED = 8
    FROM_DEAD = 16
    OWN_LEASE = 32
    # A callback URL is called when the message ends.
    CALLBACK = 64
    # It is scheduled until its holds have ended.
    HELD = 128
    # Other messages wait for its end.
    AWAITED = 256
    # It has step records.
    STEPS = 512

    # Flags that need work when the message ends.
    ENDING = KEYED | UNIQUE | CALLBACK | HELD | AWAITED
    # The subset that a set of completions cannot serve.
    ENDING_ALONE = CALLBACK
    # Flags that outlive the lease.
    LASTING = ENDING | OWN_LEASE | STEPS

    @classmethod
    def masks(cls) -> dict[str, int]:
        """Returns all flags and masks by name, for SQL and Lua."""
        return {name: value for name, value in vars(cls).items() if isinstance(value, int)}


def keep_lasting_flags(flags: int) -> int:
    """Returns the flags that outlive a lease."""
    return flags & Flag.LASTING


class Dedup(Struct, frozen=True):
    """Allows one message per key within `window` seconds, or (None) while one is unfinished."""

    key: str
    window: float | None = 86_400.0


class Meta(MessageFields, frozen=True, omit_defaults=True, gc=False):
    """The rarely used fields of a message, stored as one JSON column."""

    deadline: Moment | None = None
    dedup: str | None = None
    parent_id: int | None = None
    hops: int = 0
    callback: str | None = None
    # The rules that this message and its ancestors passed, as `name@version`.
    path: tuple[str, ...] = ()
    # The version of the subscriptions that a broadcast message was copied to.
    fan: int | None = None
    # The subject that published it or the first of its ancestors, if the caller was authenticated.
    publisher: str | None = None


PLAIN = Meta()


class After(Struct, frozen=True):
    """Other messages that must end first: entries of the same publish by index, or ids."""

    entries: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    # "any" needs `need` of them completed. "decision" waits for a person, not for messages.
    policy: Literal["all", "any", "settled", "decision"] = "all"
    need: int = 1
    on_dead: Literal["wait", "settle"] = "wait"


class Draft(MessageFields, frozen=True, gc=False, kw_only=True):
    """A message before it is published."""

    delay: float = 0.0
    run_at: Moment | None = None
    ttl: float | None = None
    expires_at: Moment | None = None
    deadline: Moment | None = None
    dedup: Dedup | None = None
    parent_id: int | None = None
    hops: int = 0
    callback: str | None = None
    # Set by rules and inherited by what a handler publishes. Clients cannot set it.
    path: tuple[str, ...] = ()
    fan: int | None = None
    # Most drafts set only these, and their check relies on their place at the end. The server sets
    # the publisher, and what a handler publishes inherits it. Clients cannot set it.
    publisher: str | None = None
    queue: str = "default"
    type: str = "message"
    priority: int = 0
    body: bytes = b""


class StoredMessage(Struct, frozen=True, gc=False):
    """The immutable part of a message."""

    id: int
    queue_id: int
    type: str
    priority: int
    created_at: Moment
    body: bytes
    meta: Meta


class FeedMessage(StoredMessage, frozen=True, gc=False):
    """A message in the export feed, with the times that were fixed when it was published.

    `run_at` is None if it was ready at once, `expires_at` is None if it never expires.
    """

    run_at: Moment | None
    expires_at: Moment | None


class Leased(StoredMessage, frozen=True, gc=False):
    """A message that a consumer has claimed until `lease_until`, under its fence."""

    fence: int
    attempts: int
    deliveries: int
    lease_until: Moment
    flags: int

    @property
    def suspect(self) -> bool:
        """True if an earlier delivery may have crashed its worker."""
        return self.deliveries >= 2


class HistoryRow(Struct, frozen=True, gc=False):
    """One finished delivery, expiry, cancel or redrive. History is append-only."""

    position: int
    id: int
    queue_id: int
    verb: Verb
    state: State
    reason: str | None
    error: str | None
    attempts: int
    deliveries: int
    consumer: str | None
    fence: int | None
    claimed_at: Moment | None
    at: Moment
    due_at: Moment | None
    final: bool
    # Only loaded with a single message, not with lists, exports or live views.
    traceback: str | None = None


class Record(Struct, frozen=True):
    """A message with its current state and its timeline."""

    message: StoredMessage
    state: State
    attempts: int = 0
    deliveries: int = 0
    reason: str | None = None
    error: str | None = None
    run_at: Moment | None = None
    expires_at: Moment | None = None
    due_at: Moment | None = None
    lease_until: Moment | None = None
    consumer: str | None = None
    cancel_requested: bool = False
    percent: float | None = None
    note: str | None = None
    timeline: tuple[HistoryRow, ...] = ()
    # When a claimed message was claimed, and when its run began, if known.
    claimed_at: Moment | None = None
    begun_at: Moment | None = None
    # The message that holds the ordering key this one waits for.
    blocked_by: int | None = None

    @property
    def redrives(self) -> int:
        return sum(row.verb is Verb.REDRIVE for row in self.timeline)

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed run."""
        found = (row.traceback for row in reversed(self.timeline) if row.traceback is not None)
        return next(found, None)


class Nack(Struct, frozen=True):
    """Reports a failed run. The message is retried if its limits allow.

    Without a delay, the queue's backoff applies. Limits given here override the queue's.
    """

    verb: ClassVar[Verb] = Verb.NACK
    error: str | None = None
    delay: float | None = None
    reason: str | None = None
    max_attempts: int | None = None
    max_total: float | None = None
    traceback: str | None = None


class Fail(Struct, frozen=True):
    """Ends the message as failed, without a retry or a dead letter."""

    verb: ClassVar[Verb] = Verb.FAIL
    error: str | None = None
    traceback: str | None = None


class SettleReject(Struct, frozen=True):
    """Moves the message to the dead letters, whatever attempts are left."""

    verb: ClassVar[Verb] = Verb.REJECT
    error: str | None = None
    traceback: str | None = None


class Release(Struct, frozen=True):
    """Returns the message unstarted. No attempt or delivery is counted."""

    verb: ClassVar[Verb] = Verb.RELEASE


class Park(Struct, frozen=True):
    """Returns a message of a type this consumer cannot handle, with a delay."""

    verb: ClassVar[Verb] = Verb.PARK
    reason: str = "UNKNOWN_TASK"


class SettleCancelled(Struct, frozen=True):
    """Ends the message as cancelled, after the consumer stopped on a cancel request."""

    verb: ClassVar[Verb] = Verb.CANCEL
    error: str | None = None


class Reclaim(Struct, frozen=True):
    """Takes the message back because its lease expired."""

    verb: ClassVar[Verb] = Verb.RECLAIM


Settlement: TypeAlias = Nack | Fail | SettleReject | Release | Park | SettleCancelled | Reclaim
