"""Requests of a search to a store, and the pages it answers."""

from enum import StrEnum

from msgspec import Struct

from penstock.model.message import Moment


class Source(StrEnum):
    """The sources of a search, each read in the order of an index.

    READY, SCHEDULED and DEAD are read queue by queue: in claim order, newest first, and last dead
    first. The others hold messages of all queues, newest first. UNSUCCESSFUL holds those that ended
    without being completed, and IDS those that a scan names.
    """

    IDS = "ids"
    MESSAGES = "messages"
    CORRELATED = "correlated"
    CLAIMED = "claimed"
    READY = "ready"
    SCHEDULED = "scheduled"
    DEAD = "dead"
    UNSUCCESSFUL = "unsuccessful"

    @property
    def by_queue(self) -> bool:
        return self in (Source.READY, Source.SCHEDULED, Source.DEAD)


class Position(Struct, frozen=True):
    """The last message read of a source. Id 0 is the beginning of the queue.

    `key` is the rank of a ready message, or when a dead one died.
    """

    queue_id: int = 0
    key: int = 0
    id: int = 0


class Scan(Struct, frozen=True):
    """Reads up to `limit` messages of a source after a position.

    A source of all queues also yields messages of other queues than `queue_ids`.
    """

    source: Source
    queue_ids: tuple[int, ...] = ()
    after: Position = Position()
    correlation_id: str | None = None
    ids: tuple[int, ...] = ()
    limit: int = 500


class ScanHead(Struct, frozen=True, gc=False):
    """The fields of a message that a source gives without reading its body."""

    id: int
    queue_id: int
    type: str
    created_at: Moment
    size: int
    key: int = 0

    @property
    def position(self) -> Position:
        return Position(self.queue_id, self.key, self.id)


class ScanPage(Struct, frozen=True):
    """`next` continues the scan. It is None at the end of the source."""

    heads: list[ScanHead]
    next: Position | None = None
