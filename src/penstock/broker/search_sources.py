"""The sources of a search: which ones it reads, and dead letters of many queues in one order."""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from penstock.model.filter import Candidate, Node
from penstock.model.message import PLAIN, Record, State, StoredMessage
from penstock.model.search import Position, Scan, ScanHead, ScanPage, Source
from penstock.rules.filter_match import may_match
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
# Dead letters of more queues are read queue by queue: merging reads the first ones of each.
MAX_MERGED_QUEUES = 100
MIN_CHUNK = 20


def list_sources(node: Node, correlation: str | None) -> list[Source]:
    """Lists the sources that together have every message that can match."""
    if correlation is not None:
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
        # The next dead letter of each queue.
        self.first: list[tuple[int, int, int]] = []
        self.begun = False

    async def read(self, limit: int) -> ScanPage:
        chunk = max(MIN_CHUNK, 2 * limit // max(1, len(self.lines)))
        if not self.begun:
            self.begun = True
            for queue_id in self.lines:
                await self.offer_next(queue_id, chunk)
        heads: list[ScanHead] = []
        while self.first and len(heads) < limit:
            queue_id = heappop(self.first)[2]
            heads.append(self.lines[queue_id].popleft())
            await self.offer_next(queue_id, chunk)
        return ScanPage(heads, drop_queue(heads[-1].position) if self.first else None)

    async def offer_next(self, queue_id: int, chunk: int) -> None:
        line = self.lines[queue_id]
        while not line and (after := self.after[queue_id]) is not None:
            page = await self.store.scan(Scan(Source.DEAD, (queue_id,), after, limit=chunk))
            line += page.heads
            self.after[queue_id] = page.next
        if line:
            heappush(self.first, (-line[0].key, -line[0].id, queue_id))


def drop_queue(position: Position) -> Position:
    return Position(key=position.key, id=position.id)


async def find_merge(
    store: Store, queue_ids: Sequence[int], after: Position
) -> DeadLetterMerge | None:
    """Returns None if the queues are read one after the other, as a cursor may ask for."""
    if after.queue_id:
        return None
    if len(queue_ids) > MAX_MERGED_QUEUES:
        counts = await store.dead_counts()
        queue_ids = [id for id in queue_ids if counts.get(id)]
    if len(queue_ids) > MAX_MERGED_QUEUES and not after.id:
        return None
    return DeadLetterMerge(store, queue_ids, after)
