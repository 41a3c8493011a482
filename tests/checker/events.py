"""The lines of a recorded history.

A moment named `at`, `start` or `end` is CLOCK_MONOTONIC in nanoseconds; every other moment is the
store's clock in microseconds. Lengths of time are seconds.
"""

from typing import Literal

from msgspec import Struct

Outcome = Literal["ok", "refused", "unknown"]
Verb = Literal[
    "complete", "nack", "reject", "fail", "release", "park", "cancel", "wait", "extend", "begin"
]

# How a store may write that a message waits for its key, not for a moment.
NEVER = 2**53 - 1

ALREADY_SETTLED = "ALREADY_SETTLED"
LOCK_LOST = "LOCK_LOST"
INVALID_STATE = "INVALID_STATE"


class Noun(Struct, frozen=True, omit_defaults=True, gc=False):
    """A frozen value that writes only what differs from its defaults."""


class Call(Noun, frozen=True, tag_field="call"):
    """What a process asked of the queue."""


class Publish(Call, frozen=True, tag="publish"):
    """`label` is unique to this body; publishes of one `batch` are one durable step."""

    label: str
    queue: str
    ordering_key: str | None = None
    dedup: str | None = None
    due_at: int | None = None
    priority: int = 0
    batch: str | None = None


class Claim(Call, frozen=True, tag="claim"):
    """`begins`: this consumer promises to call begin before it runs a suspect."""

    queue: str
    begins: bool = False


class Settle(Call, frozen=True, tag="settle"):
    """Any write that carries a fence. Extend and begin end nothing; cancel is a worker's own.

    `signal`: a wait lasts until a signal of that name, or until its due time.
    """

    verb: Verb
    id: int
    fence: int
    signal: str = ""


class Cancel(Call, frozen=True, tag="cancel"):
    id: int
    force: bool = False


class Signal(Call, frozen=True, tag="signal"):
    id: int
    name: str


class Redrive(Call, frozen=True, tag="redrive"):
    id: int


class Fire(Call, frozen=True, tag="fire"):
    """One tick of a cron schedule, fired by whoever noticed it."""

    schedule: str
    tick: int


class Claimed(Noun, frozen=True):
    """One message as a claim handed it out."""

    id: int
    label: str
    fence: int
    attempts: int
    deliveries: int
    claimed_at: int
    lease_until: int
    lease: float = 0.0
    intact: bool = True


class Answer(Noun, frozen=True):
    """What came back. `unknown` means: it may have happened, and may still happen.

    `awaits` has the messages that a wait waits for: all of them have to end.
    """

    outcome: Outcome
    code: str = ""
    id: int | None = None
    duplicate: bool = False
    claims: tuple[Claimed, ...] = ()
    lease_until: int | None = None
    due_at: int | None = None
    state: str = ""
    awaits: tuple[int, ...] = ()


class Line(Noun, frozen=True, tag_field="line"):
    """One line of a history file."""


class Invoke(Line, frozen=True, tag="invoke"):
    process: str
    number: int
    at: int
    call: Publish | Claim | Settle | Cancel | Signal | Redrive | Fire


class Result(Line, frozen=True, tag="result"):
    process: str
    number: int
    at: int
    answer: Answer


class Fault(Line, frozen=True, tag="fault"):
    """`kind` is kill, stop, cut (until cont or heal of the target) and so on; no target: all."""

    at: int
    kind: str
    target: str = ""


class Plan(Line, frozen=True, tag="plan"):
    """What the run asked for and how exact its promises are."""

    faults: tuple[str, ...] = ()
    reclaim_within: float = 2.0
    lease_slack: float = 0.06
    due_slack: float = 0.002
    excuses: tuple[str, ...] = ("kill", "stop", "cut")
    fault_shadow: float = 5.0


class Queue(Line, frozen=True, tag="queue"):
    """The settings of one queue that the counting rules need."""

    queue: str
    max_attempts: int = 5
    max_deliveries: int = 8
    counts: Literal["attempts", "deliveries"] = "attempts"
    on_expiry: Literal["keep", "count", "backoff"] = "keep"


class Schedule(Line, frozen=True, tag="schedule"):
    """Every tick that had to fire."""

    schedule: str
    ticks: tuple[int, ...]


class Row(Noun, frozen=True):
    """One history row of a stored message, in the order of the store."""

    verb: str
    state: str
    fence: int | None
    at: int
    final: bool = False


class Stored(Line, frozen=True, tag="stored"):
    """One message of the final dump. `places` are the tables that hold its ticket."""

    id: int
    label: str
    queue: str
    state: str
    attempts: int
    deliveries: int
    rows: tuple[Row, ...] = ()
    places: tuple[str, ...] | None = None
    intact: bool = True
    due_at: int | None = None
    parent: int | None = None
    schedule: str | None = None
    tick: int | None = None


class End(Line, frozen=True, tag="end"):
    """Closes the dump: how many messages it holds and the store's clock then."""

    at: int
    clock_at: int
    messages: int


AnyCall = Publish | Claim | Settle | Cancel | Signal | Redrive | Fire
AnyLine = Invoke | Result | Fault | Plan | Queue | Schedule | Stored | End
