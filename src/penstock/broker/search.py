"""Searches messages by a filter, within bounds: stores drive, the matcher decides."""

import time
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.broker.search_sources import (
    STATE_OF,
    DeadLetterMerge,
    drop_queue,
    list_sources,
    make_brief_record,
    make_merge,
    split_heads,
)
from penstock.errors import InvalidInput
from penstock.model.filter import Candidate, Node
from penstock.model.message import CLOCK_SLACK_MICROS, NEVER, Moment, Record
from penstock.model.queue import Queue
from penstock.model.search import Position, Scan, ScanHead, ScanPage, Source
from penstock.rules.filter_match import (
    Verdict,
    find_bounds,
    judge,
    list_fields,
    make_candidate,
    matches,
    may_match,
)
from penstock.rules.filter_parser import parse_filter
from penstock.rules.masking import Reveals, check_filter
from penstock.store import Store

MAX_SCANNED = 20_000
MAX_BYTES = 64_000_000
# People wait for a page. The next one goes on where it ended.
MAX_WORK_S = 0.2
PAGE_SIZE = 500
# Messages that are read at once.
MIN_READ, MAX_READ = 50, 200
HEAD_FIELDS = ("queue", "scope", "type", "id", "created", "size")
PLACED_FIELDS = ("state", *HEAD_FIELDS)
# The subset of HEAD_FIELDS that differs from message to message.
OWN_FIELDS = ("id", "created", "size")
MAX_VERDICTS = 1_000


class SearchResult(Struct, frozen=True):
    """One page of a search. `cursor` continues it; without one, everything was searched.

    A search of a page ends early at its bounds: then `records` may be few or none although more
    messages match. `scanned_to` is when the last message that it read was created.
    """

    records: list[Record]
    scanned_to: Moment | None = None
    cursor: str | None = None
    # How many messages it read; 0 if a server searched.
    scanned: int = 0

    @property
    def exact(self) -> bool:
        """True if no message after these matches."""
        return self.cursor is None


def join_terms(filter: str, **terms: str | None) -> str:
    """Adds terms to a filter, behind it so that positions in errors stay right."""
    given = {field: value for field, value in terms.items() if value is not None}
    return " ".join([filter, *(f"{field}:{quote(value)}" for field, value in given.items())])


def quote(value: str) -> str:
    """Writes text as a filter takes it literally, with stars and spaces."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SearchCursor(Struct, frozen=True):
    """The position of the next page. `now` keeps relative times the same on all pages."""

    now: Moment
    source: Source
    after: Position = Position()

    def encode(self) -> str:
        after = self.after
        return f"{self.now}.{self.source.value}.{after.queue_id}.{after.key}.{after.id}"


def decode_cursor(text: str) -> SearchCursor:
    try:
        now, source, *numbers = text.split(".")
        queue_id, key, id = map(int, numbers)
        cursor = SearchCursor(int(now), Source(source), Position(queue_id, key, id))
    except ValueError:
        raise InvalidInput(f"{text[:60]!r} is not the cursor of a search") from None
    if cursor.encode() != text or max(map(abs, (cursor.now, queue_id, key, id))) >= 2**62:
        raise InvalidInput(f"{text[:60]!r} is not the cursor of a search")
    return cursor


class Search:
    """The search for one page.

    With `brief`, a waiting or dead message whose index decides is not read: its record has no body
    and no history.
    """

    def __init__(
        self,
        store: Store,
        node: Node,
        queues: Mapping[int, Queue],
        limit: int,
        *,
        brief: bool = False,
    ) -> None:
        self.store = store
        self.node = node
        self.queues = queues
        self.limit = limit
        self.brief = brief
        self.bounds = find_bounds(node)
        self.ids = tuple(id for id in self.bounds.ids or () if 0 < id < 2**63)
        self.looks_at_heads = any(term.field in OWN_FIELDS for term in list_fields(node))
        self.verdicts: dict[tuple[Source, int, str], Verdict] = {}
        self.records: list[Record] = []
        # Where each of them was found.
        self.places: list[tuple[Source, Position]] = []
        # Most pages are full at once, and one that is not reads more and more at a time.
        self.page = min(PAGE_SIZE, max(MIN_READ, limit))
        # The source that is being read, and how its queues are merged.
        self.source: Source | None = None
        self.merge: DeadLetterMerge | None = None
        self.scanned = 0
        self.bytes = 0
        self.scanned_to: Moment | None = None
        self.stop_at = time.monotonic() + MAX_WORK_S

    async def run(self, now: Moment, cursor: SearchCursor | None) -> SearchResult:
        sources = list_sources(self.node, self.bounds)
        if cursor is not None and cursor.source not in sources:
            raise InvalidInput("the cursor belongs to a search with another filter")
        if cursor is None and sources:
            cursor = SearchCursor(now, sources[0], await self.find_start(sources[0]))
        while cursor is not None:
            cursor = await self.read_page(cursor, sources)
            if cursor is not None and self.is_over():
                return self.make_result(cursor.encode())
        return self.make_result(None)

    def is_over(self) -> bool:
        """A page reads at least one page of its source, so that every call gets on."""
        return (
            len(self.records) >= self.limit
            or self.scanned >= MAX_SCANNED
            or self.bytes >= MAX_BYTES
            or time.monotonic() >= self.stop_at
        )

    def make_result(self, cursor: str | None) -> SearchResult:
        return SearchResult(self.records, self.scanned_to, cursor, self.scanned)

    async def read_page(
        self, cursor: SearchCursor, sources: Sequence[Source]
    ) -> SearchCursor | None:
        """Reads a page of the source. Returns where to go on, or None at the end of all."""
        source, limit = cursor.source, min(self.page, MAX_SCANNED - self.scanned)
        self.page = min(PAGE_SIZE, 2 * self.page)
        page = await self.scan(source, cursor.after, limit)
        for batch in split_heads(page.heads, self.count_wanted()):
            last = await self.keep_matching(source, batch)
            if last is not None or self.is_over():
                return SearchCursor(cursor.now, source, self.locate(last or batch[-1]))
        if page.next is not None and not self.is_past_bounds(source, page.heads):
            return SearchCursor(cursor.now, source, page.next)
        rest = sources[sources.index(source) + 1 :]
        return SearchCursor(cursor.now, rest[0]) if rest else None

    def count_wanted(self) -> int:
        return min(MAX_READ, max(MIN_READ, self.limit - len(self.records)))

    async def scan(self, source: Source, after: Position, limit: int) -> ScanPage:
        if source is not self.source:
            self.source = source
            is_dead = source is Source.DEAD
            self.merge = make_merge(self.store, [*self.queues], after) if is_dead else None
        if self.merge is not None:
            return await self.merge.read(limit, self.stop_at)
        return await self.store.scan(
            Scan(
                source=source,
                queue_ids=tuple(self.queues),
                after=after,
                correlation_id=self.bounds.correlation,
                ids=self.ids,
                limit=limit,
            )
        )

    def locate(self, head: ScanHead) -> Position:
        return head.position if self.merge is None else drop_queue(head.position)

    async def keep_matching(self, source: Source, batch: Sequence[ScanHead]) -> ScanHead | None:
        """Keeps the messages that match. Returns the last one if the page is full."""
        verdicts = {head.id: self.judge_head(source, head) for head in batch}
        wanted = {head.id: head for head in batch if verdicts[head.id] is not False}
        self.scanned += len(batch)
        self.scanned_to = batch[-1].created_at
        state = STATE_OF.get(source)
        for record in await self.read_records(source, wanted, verdicts):
            # A message may have left the place in which it was found.
            sure = verdicts[record.message.id] and state in (None, record.state)
            if sure or self.is_match(record):
                self.records.append(record)
                self.places.append((source, self.locate(wanted[record.message.id])))
                if len(self.records) == self.limit:
                    self.scanned_to = record.message.created_at
                    return wanted[record.message.id]
        return None

    async def read_records(
        self, source: Source, wanted: Mapping[int, ScanHead], verdicts: Mapping[int, Verdict]
    ) -> list[Record]:
        if self.brief and source.by_queue and all(verdicts[id] for id in wanted):
            return [make_brief_record(head, STATE_OF[source]) for head in wanted.values()]
        self.bytes += sum(head.size for head in wanted.values())
        return await self.store.get_many(list(wanted)) if wanted else []

    def judge_head(self, source: Source, head: ScanHead) -> Verdict:
        """Decides once for each queue and type, unless the filter looks at the message itself."""
        key = None if self.looks_at_heads else (source, head.queue_id, head.type)
        if key is None:
            return self.decide_head(source, head)
        if key not in self.verdicts:
            if len(self.verdicts) >= MAX_VERDICTS:
                self.verdicts.clear()
            self.verdicts[key] = self.decide_head(source, head)
        return self.verdicts[key]

    def decide_head(self, source: Source, head: ScanHead) -> Verdict:
        """Returns None if the rest of the message decides."""
        queue = self.queues.get(head.queue_id)
        if queue is None:
            return False
        known = Candidate(
            queue=queue.name,
            scope=queue.scope.name,
            type=head.type,
            id=head.id,
            created=head.created_at,
            size=head.size,
            state=STATE_OF.get(source),
        )
        return judge(self.node, known, HEAD_FIELDS if known.state is None else PLACED_FIELDS)

    def is_match(self, record: Record) -> bool:
        queue = self.queues.get(record.message.queue_id)
        return queue is not None and matches(self.node, make_candidate(record, queue))

    def is_past_bounds(self, source: Source, heads: Sequence[ScanHead]) -> bool:
        """True if all older messages were created too early."""
        return (
            not source.by_queue
            and bool(heads)
            and heads[-1].created_at < self.bounds.created_since - CLOCK_SLACK_MICROS
        )

    async def find_start(self, source: Source) -> Position:
        """Finds, by halving, a message below which all that were created early enough are."""
        until = self.bounds.created_until + CLOCK_SLACK_MICROS
        if source.by_queue or source is Source.IDS or self.bounds.created_until == NEVER:
            return Position()
        newest = await self.find_below(0)
        if newest is None or newest.created_at <= until:
            return Position()
        low, high = 0, newest.id
        while high - low > PAGE_SIZE:
            middle = (low + high) // 2
            head = await self.find_below(middle)
            if head is None or head.created_at <= until:
                low = middle
            else:
                high = head.id
        return Position(id=high)

    async def find_below(self, id: int) -> ScanHead | None:
        """Returns the newest message below an id, or of all. None means that it is not known."""
        page = await self.store.scan(Scan(Source.MESSAGES, after=Position(id=id), limit=10))
        return page.heads[0] if page.heads else None


def select_queues(node: Node, queues: Iterable[Queue]) -> dict[int, Queue]:
    """Returns the queues whose messages can match."""
    return {
        queue.id: queue
        for queue in queues
        if may_match(node, Candidate(queue=queue.name, scope=queue.scope.name), ("queue", "scope"))
    }


async def search_messages(
    store: Store,
    filter: str,
    queues: Iterable[Queue],
    cursor: str | None,
    limit: int,
    reveals: Reveals,
) -> SearchResult:
    """Searches the queues that the caller may read."""
    found = None if cursor is None else decode_cursor(cursor)
    now = await store.now() if found is None else found.now
    node = parse_filter(filter, now)
    fitting = select_queues(node, queues)
    if not fitting:
        return SearchResult([])
    check_filter(node, fitting.values(), reveals)
    return await Search(store, node, fitting, limit).run(now, found)
