"""The waits of a message: holds, edges to other messages, step records and signals."""

from typing import Literal, NamedTuple

from msgspec import Struct

from penstock.model.message import After, Draft, Moment, State, Verb
from penstock.model.store_types import AnswerKind, Entry

MAX_RESUME_BATCH = 500
HoldKind = Literal["moment", "signal", "after"]
StepKind = Literal["step", "sleep", "signal", "gather", "enqueue", "human"]


class Hold(Struct, frozen=True, kw_only=True):
    """A reason to wait. It ends when it is due, by a signal, or when other messages have ended.

    A hold of kind `signal` or `after` that has a due time also ends then.
    """

    kind: HoldKind
    # The name of a signal.
    name: str = ""
    # When it ends: seconds from now, or a moment of the store's clock.
    delay: float | None = None
    due_at: Moment | None = None
    after: After | None = None


class StoredHold(NamedTuple):
    """A stored hold. `number` is the fence of the delivery that waits, 0 before the first."""

    held_id: int
    place: int
    number: int
    due_at: Moment
    kind: HoldKind
    name: str
    policy: str
    need: int
    on_dead: str


class StepRecord(Struct, frozen=True, kw_only=True):
    """The stored outcome of a step. One that is not done has only begun, like a sleep."""

    name: str
    # The occurrence of the name in the run, or the key that the handler gave.
    key: str
    kind: StepKind = "step"
    # Orders the records of a message.
    position: int = 0
    body: bytes = b""
    done: bool = True
    due_at: Moment | None = None
    # When it was stored, and under which fence.
    at: Moment = 0
    fence: int = 0


class StepLog(Struct, frozen=True):
    """The step records of a message in order, and when they were read.

    A store may add the oldest signals that were not received yet, to save a call.
    """

    steps: list[StepRecord]
    now: Moment
    signals: "list[StoredSignal]" = []


class StepSave(Struct, frozen=True, kw_only=True):
    """Stores a step under the fence of its delivery.

    An entry is published with it and its id becomes the body. A signal is consumed with it.
    """

    id: int
    fence: int
    step: StepRecord
    entry: Entry | None = None
    consumes: int | None = None


class StepSaved(Struct, frozen=True):
    """The answer to a StepSave. A step that was done before is returned as it was stored."""

    kind: AnswerKind
    step: StepRecord | None = None


class WaitPlan(Struct, frozen=True, kw_only=True):
    """The waits of a run. Its children are published when it is suspended."""

    reason: str
    holds: tuple[Hold, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    children: tuple[Draft, ...] = ()
    children_step: StepRecord | None = None


class AwaitedOutcome(Struct, frozen=True):
    """The end of an awaited message. `state` is None while it has not ended."""

    id: int
    state: State | None = None
    result: bytes | None = None


class Wait(Struct, frozen=True, kw_only=True):
    """Ends a delivery until all holds have ended. It applies only if fence and flags are unchanged.

    Children are published with it. Their ids become the body of `children_step`, and holds refer
    to them by index. A step with a delay is due when the hold with that delay is.
    """

    id: int
    fence: int
    seen_flags: int
    attempts: int
    deliveries: int
    reason: str
    holds: tuple[Hold, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    children: tuple[Entry, ...] = ()
    children_step: StepRecord | None = None


class PastWait(NamedTuple):
    """A wait of an earlier delivery: when it began, and the claim of that delivery.

    `due_at` is the moment that would end it at the latest.
    """

    at: Moment
    claimed_at: Moment
    due_at: Moment | None


class WaitFacts(Struct, frozen=True):
    """The counts that limit the waits of a message, since it was published or redriven."""

    waits: int = 0
    steps: int = 0
    # True if the current delivery stored a step.
    recorded: bool = False
    # The last waits, newest first.
    recent: tuple[PastWait, ...] = ()


class ResumeResult(Struct, frozen=True):
    """The result of checking held messages, and when the next hold is due."""

    seen: int
    resumed: int
    now: Moment
    next_at: Moment | None = None
    # True if more may be found at once.
    more: bool = False


class SignalDraft(Struct, frozen=True, kw_only=True):
    id: int
    name: str
    body: bytes
    # A repeated signal with the same key is stored once.
    key: str | None = None
    # The live event about it, which is stored with it.
    event: bytes = b""


class StoredSignal(Struct, frozen=True, kw_only=True):
    """A signal of a message. The oldest unconsumed one of its name is received first."""

    id: int
    message_id: int
    name: str
    body: bytes
    at: Moment
    key: str | None = None
    consumed: bool = False


class SignalAnswer(Struct, frozen=True):
    """The outcome of a signal: its id if it is stored, otherwise an error code."""

    id: int = 0
    duplicate: bool = False
    code: str | None = None
    state: State | None = None
    # It has resumed its message, so that no look is needed.
    resumed: bool = False


class CancelledTree(Struct, frozen=True):
    """A cancelled message, and how many messages below it were cancelled or asked to stop."""

    state: State
    cancel_requested: bool
    children: int


class HeldEnd(Struct, frozen=True, kw_only=True):
    """Ends a held message from outside, for example by a decision. The first end counts."""

    id: int
    verb: Verb
    state: State
    reason: str | None = None
    result: bytes | None = None


class Edge(Struct, frozen=True):
    """A held message waits for another one. Settled edges have the state it ended in."""

    held_id: int
    awaited_id: int
    number: int
    state: State | None = None
