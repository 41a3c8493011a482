"""Nouns: a message as it is published, held, settled and remembered."""

from enum import StrEnum
from typing import ClassVar, TypeAlias

from msgspec import Struct

# Microseconds since 1970 UTC, always by the store's clock.
Moment: TypeAlias = int

# Exact in a double, so that Redis scores and JSON readers keep it.
NEVER: Moment = 2**53 - 1


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


class Verb(StrEnum):
    """What was done; a history row says the verb and the state it led to."""

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


class Flag:
    """Bits of a ticket. A feature that is not used costs nothing."""

    KEYED = 1
    UNIQUE = 2
    # Claimed by a consumer that promised to call begin, and has not.
    UNBEGUN = 4
    CANCEL_REQUESTED = 8
    FROM_DEAD = 16
    OWN_LEASE = 32
    # Somebody is to be told when the message ends.
    CALLBACK = 64

    # What there is to do for when the message ends.
    ENDING = KEYED | UNIQUE | CALLBACK
    # What a ticket keeps when its lease ends.
    LASTING = ENDING | OWN_LEASE


class Dedup(Struct, frozen=True):
    """One message per key: inside `window` seconds, or while unfinished if it is None."""

    key: str
    window: float | None = 86_400.0


class Meta(Struct, frozen=True, omit_defaults=True, gc=False):
    """The rarely used part of a message, stored as one JSON text."""

    name: str | None = None
    headers: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    content_type: str = "application/json"
    deadline: Moment | None = None
    lease: float | None = None
    timeout: float | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    ordering_key: str | None = None
    dedup: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: int | None = None
    traceparent: str | None = None
    hops: int = 0
    callback: str | None = None


PLAIN = Meta()


class Draft(Struct, frozen=True, kw_only=True):
    """A message before it is published."""

    queue: str = "default"
    type: str = "message"
    body: bytes = b""
    priority: int = 0
    delay: float = 0.0
    run_at: Moment | None = None
    ttl: float | None = None
    expires_at: Moment | None = None
    dedup: Dedup | None = None
    name: str | None = None
    headers: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    content_type: str = "application/json"
    deadline: Moment | None = None
    lease: float | None = None
    timeout: float | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    ordering_key: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: int | None = None
    traceparent: str | None = None
    hops: int = 0
    callback: str | None = None


class StoredMessage(Struct, frozen=True, gc=False):
    """Written once, never rewritten."""

    id: int
    queue_id: int
    type: str
    priority: int
    created_at: Moment
    body: bytes
    meta: Meta


class FeedMessage(StoredMessage, frozen=True, gc=False):
    """A message as the feed tells it, with the moments that publishing settled.

    `run_at` is None if it was to run at once, `expires_at` if it never expires.
    """

    run_at: Moment | None
    expires_at: Moment | None


class Leased(StoredMessage, frozen=True, gc=False):
    """A message in a consumer's hands until `lease_until`, under its fence."""

    fence: int
    attempts: int
    deliveries: int
    lease_until: Moment
    flags: int

    @property
    def suspect(self) -> bool:
        """It was delivered before and did not come back: run it beside no other suspect."""
        return self.deliveries >= 2


class HistoryRow(Struct, frozen=True, gc=False):
    """One ended delivery, expiry, cancel or redrive. Append-only."""

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
    # Where the run failed. Read with one message, not with lists, exports or live views.
    traceback: str | None = None


class Record(Struct, frozen=True):
    """A message, where it is at one moment, and how it came there."""

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
    # Of a claimed message: since when it is held, and since when it runs, if that is known.
    claimed_at: Moment | None = None
    begun_at: Moment | None = None

    @property
    def redrives(self) -> int:
        return sum(row.verb is Verb.REDRIVE for row in self.timeline)

    @property
    def traceback(self) -> str | None:
        """Where the last run that failed did so."""
        found = (row.traceback for row in reversed(self.timeline) if row.traceback is not None)
        return next(found, None)


class Nack(Struct, frozen=True):
    """It did not work; try again if the rules allow.

    A delay of None is for the queue's backoff to decide; the limits, if given, beat the queue's.
    """

    verb: ClassVar[Verb] = Verb.NACK
    error: str | None = None
    delay: float | None = None
    reason: str | None = None
    max_attempts: int | None = None
    max_total: float | None = None
    traceback: str | None = None


class Fail(Struct, frozen=True):
    """The consumer says it is final."""

    verb: ClassVar[Verb] = Verb.FAIL
    error: str | None = None
    traceback: str | None = None


class SettleReject(Struct, frozen=True):
    """To the dead letters, whatever attempts are left."""

    verb: ClassVar[Verb] = Verb.REJECT
    error: str | None = None
    traceback: str | None = None


class Release(Struct, frozen=True):
    """Handed back unworked: no attempt, no delivery."""

    verb: ClassVar[Verb] = Verb.RELEASE


class Park(Struct, frozen=True):
    """This consumer does not know the type; wait for one that does."""

    verb: ClassVar[Verb] = Verb.PARK
    reason: str = "UNKNOWN_TASK"


class SettleCancelled(Struct, frozen=True):
    """The consumer stopped because a cancel was requested."""

    verb: ClassVar[Verb] = Verb.CANCEL
    error: str | None = None


class Reclaim(Struct, frozen=True):
    """The lease ran out."""

    verb: ClassVar[Verb] = Verb.RECLAIM


Settlement: TypeAlias = Nack | Fail | SettleReject | Release | Park | SettleCancelled | Reclaim
