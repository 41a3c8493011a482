"""Nouns of the model: a message as the contract sees it, and the lease on it."""

from dataclasses import dataclass, field

from penstock.model.message import Draft, HistoryRow, Moment, State
from penstock.model.queue import QueueState
from penstock.model.settings import QueueSettings

SECOND = 1_000_000


def moment_after(now: Moment, seconds: float) -> Moment:
    return now + round(seconds * SECOND)


@dataclass
class Line:
    """A queue: its rules and its switch."""

    id: int
    name: str
    settings: QueueSettings
    state: QueueState = QueueState.ACTIVE


@dataclass
class Hold:
    """A lease, and what is known about the work under it."""

    fence: int
    consumer: str
    claimed_at: Moment
    until: Moment
    # Seconds asked for when it was claimed or last extended.
    length: float
    from_dead: bool = False
    unbegun: bool = False
    cancel_requested: bool = False
    percent: float | None = None
    note: str | None = None
    begun_at: Moment | None = None


@dataclass
class Waiting:
    """Why a message is held. An edge has the state its message ended in, None while it has not."""

    kind: str
    number: int
    due_at: Moment
    name: str
    policy: str
    need: int
    on_dead: str
    edges: dict[int, State | None]

    @property
    def settles(self) -> bool:
        return self.on_dead == "settle"


@dataclass
class Item:
    """A message. `place` is ready, scheduled, lease, dead, or None when it is finished."""

    id: int
    queue: Line
    draft: Draft
    created_at: Moment
    due_at: Moment
    expires_at: Moment | None
    rank: int
    # When it was to run first, if that was not at once.
    run_at: Moment | None = None
    place: str | None = None
    attempts: int = 0
    deliveries: int = 0
    hold: Hold | None = None
    # It is its key's turn; or it stands in its key's line, smaller first.
    heads_key: bool = False
    turn: tuple[int, int] | None = None
    # Where it comes into line: by its own id, or by that of the message it replaced.
    line_id: int = 0
    first_claimed_at: Moment | None = None
    parked: int = 0
    dead_at: tuple[Moment, int] = (0, 0)
    dead_reason: str | None = None
    dead_error: str | None = None
    timeline: list[HistoryRow] = field(default_factory=list)
    # What it waits for, its steps by name and key with their fence, its unconsumed signals.
    waits: list[Waiting] = field(default_factory=list)
    steps: dict[tuple[str, str], int] = field(default_factory=dict)
    signals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line_id = self.line_id or self.id

    @property
    def key(self) -> str | None:
        return self.draft.ordering_key

    @property
    def order(self) -> tuple[int, int]:
        return self.rank, self.id

    @property
    def state(self) -> State:
        match self.place:
            case "ready" | "scheduled" | "dead":
                return State(self.place)
            case "lease":
                return State.CLAIMED
        return self.timeline[-1].state

    @property
    def open(self) -> bool:
        """It waits or is claimed."""
        return self.place in ("ready", "scheduled", "lease")

    def expired(self, now: Moment) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def held(self) -> Hold:
        assert self.hold is not None, f"message {self.id} is not claimed"
        return self.hold
