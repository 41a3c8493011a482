"""Everything a store keeps about its messages, as `penstock copy` moves it to another store."""

from msgspec import Struct

from penstock.model.message import FeedMessage, HistoryRow, Moment, TicketPlace
from penstock.model.waiting import Edge, StepRecord, StoredHold, StoredSignal


class CopyCursor(Struct, frozen=True):
    """The position of a dump. Keys come first; `keys` is None once all were read."""

    keys: str | None = ""
    message: int = 0


class StoreCounters(Struct, frozen=True):
    """The last numbers that a store gave away, and the largest id that retention removed."""

    message: int = 0
    fence: int = 0
    pruned: int = 0


class StoredKey(Struct, frozen=True, gc=False):
    """A dedup key and the message that used it."""

    queue_id: int
    key: str
    id: int
    digest: bytes
    expires_at: Moment


class StoredResult(Struct, frozen=True, gc=False):
    body: bytes
    expires_at: Moment


class StoredTicket(Struct, frozen=True, gc=False):
    """The moving part of an unfinished message.

    `due_at` is NEVER while it waits for its ordering key, in the order of `position`. `head` is
    True while it holds the key.
    """

    place: TicketPlace
    rank: int
    attempts: int
    deliveries: int
    flags: int
    head: bool = False
    due_at: Moment | None = None
    position: int | None = None
    dead_at: Moment | None = None
    reason: str | None = None
    error: str | None = None


class StoredWaits(Struct, frozen=True):
    """Holds and edges of a message, the steps of its runs, and its signals."""

    holds: tuple[StoredHold, ...] = ()
    edges: tuple[Edge, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    signals: tuple[StoredSignal, ...] = ()


class StoredLife(Struct, frozen=True, gc=False):
    """A message with its ticket, history and result. `rank` is the one it was published with."""

    message: FeedMessage
    rank: int
    ticket: StoredTicket | None
    history: tuple[HistoryRow, ...] = ()
    result: StoredResult | None = None
    waits: StoredWaits | None = None


class StoreDump(Struct, frozen=True):
    """A page of a dump. Messages are in the order of their ids, the first one after `after`."""

    counters: StoreCounters
    cursor: CopyCursor
    keys: list[StoredKey] = []
    lives: list[StoredLife] = []
    # Results of removed messages that messages in `lives` wait for.
    results: dict[int, StoredResult] = {}
    after: int = 0
    # True if nothing is left to read.
    done: bool = False
