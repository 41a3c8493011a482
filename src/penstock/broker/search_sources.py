"""The sources of a search: which ones it reads, and dead letters of many queues in one order."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from penstock.model.filter import Candidate, Node
from penstock.model.message import PLAIN, Record, State, StoredMessage
from penstock.model.search import Position, Scan, ScanHead, ScanPage, Source
from penstock.rules.filter_match import Bounds, may_match
from penstock.store import Store

# Bodies that are read at once, so that a page of large messages fits in memory.
BATCH_BYTES = 4_000_000
SOURCES = {
    State.READY: Source.READY,
    State.SCHEDULED: Source.SCHEDULED,
    State.CLAIMED: Source.CLAIMED,
    State.DEAD: Source.DEAD,
    State.FAILED: Source.UNSUCCESSFUL,
    State.EXPIRED: Source.UNSUCCESSFUL,
    State.CANCELLED: Source.UNSUCCESSFUL,
}
# The state of all messages of a source.
STATE_OF = {
    Source.READY: State.READY,
    Source.SCHEDULED: State.SCHEDULED,
    Source.CLAIMED: State.CLAIMED,
    Source.DEAD: State.DEAD,
}
# Dead letters of more queues are read queue by queue, because a merge reads the first of each.
MAX_MERGED_QUEUES = 100
# Dead letters of one queue that a merge reads at once.
MIN_CHUNK, MAX_CHUNK = 2, 200


def list_sources(node: Node, bounds: Bounds) -> list[Source]:
    """Lists the sources that together have every message that can match."""
    if bounds.ids is not None:
        return [Source.IDS]
    if bounds.correlation is not None:
        return [Source.CORRELATED]
    states = [state for state in State if may_match(node, Candidate(state=state), ("state",))]
    if all(state in SOURCES for state in states):
        return list(dict.fromkeys(SOURCES[state] for state in SOURCES if state in states))
    return [Source.MESSAGES]


def make_brief_record(head: ScanHead, state: State) -> Record:
    return Record(
        StoredMessage(head.id, head.queue_id, head.type, 0, head.created_at, b"", PLAIN), state
    )


def split_heads(heads: Sequence[ScanHead], count: int) -> Iterator[list[ScanHead]]:
    """Splits a page by the size of the bodies."""
    batch: list[ScanHead] = []
    room = BATCH_BYTES
    for head in heads:
        if batch and (len(batch) == count or head.size > room):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(head)
        room -= head.size
    if batch:
        yield batch


class DeadLetterMerge:
    """Reads the dead letters of some queues, the last dead first.

    Its positions have no queue: they hold for all of them.
    """

    def __init__(self, store: Store, queue_ids: Sequence[int], after: Position) -> None:
        self.store = store
        self.after: dict[int, Position | None] = {
            id: Position(id, after.key, after.id) for id in queue_ids
        }
        self.lines: dict[int, deque[ScanHead]] = {id: deque() for id in queue_ids}
        # How many dead letters of each queue are read next. Empty before the first page.
        self.chunks: dict[int, int] = {}
        # The next dead letter of each queue.
        self.first: list[tuple[int, int, int]] = []

    async def read(self, limit: int, stop_at: float) -> ScanPage:
        """Reads a page, which may be shorter once it is `stop_at`."""
        if not self.chunks:
            chunk = min(MAX_CHUNK, limit // len(self.lines) + MIN_CHUNK)
            self.chunks = dict.fromkeys(self.lines, chunk)
            for queue_id in self.lines:
                await self.offer_next(queue_id)
        heads: list[ScanHead] = []
        while self.first and len(heads) < limit:
            if heads and time.monotonic() >= stop_at:
                break
            queue_id = heappop(self.first)[2]
            heads.append(self.lines[queue_id].popleft())
            await self.offer_next(queue_id)
        return ScanPage(heads, drop_queue(heads[-1].position) if self.first else None)

    async def offer_next(self, queue_id: int) -> None:
        line = self.lines[queue_id]
        while not line and (after := self.after[queue_id]) is not None:
            chunk = self.chunks[queue_id]
            page = await self.store.scan(Scan(Source.DEAD, (queue_id,), after, limit=chunk))
            line += page.heads
            self.after[queue_id] = page.next
            # A queue whose dead letters are wanted probably has more of them.
            self.chunks[queue_id] = min(MAX_CHUNK, 2 * chunk)
        if line:
            heappush(self.first, (-line[0].key, -line[0].id, queue_id))


def drop_queue(position: Position) -> Position:
    return Position(key=position.key, id=position.id)


def make_merge(store: Store, queue_ids: Sequence[int], after: Position) -> DeadLetterMerge | None:
    """Returns None if the queues are read one after the other: too many, or as a cursor asks."""
    if after.queue_id or len(queue_ids) > MAX_MERGED_QUEUES:
        return None
    return DeadLetterMerge(store, queue_ids, after)
