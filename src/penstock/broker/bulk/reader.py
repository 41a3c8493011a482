"""Reads what a bulk action works on: its rights, its queues and its next messages."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.credentials import Credentials
from penstock.broker.queue_cache import QueueCache
from penstock.broker.search import (
    MAX_READ,
    MIN_READ,
    Search,
    SearchCursor,
    decode_cursor,
    select_queues,
)
from penstock.errors import Forbidden, NotFound
from penstock.model.bulk import BulkAction, BulkActor, BulkState, BulkVerb
from penstock.model.message import Record
from penstock.model.queue import Queue, QueueState
from penstock.model.search import Position, Scan, Source
from penstock.rules import drafts
from penstock.rules.access import EVERYTHING, Access, Right
from penstock.rules.bulk import MAX_BATCH
from penstock.rules.filter_parser import parse_filter
from penstock.rules.masking import Reveals, check_filter
from penstock.store import Store

IDS = "bulk_ids"
# Bodies that one change writes, and one script of Redis receives.
MAX_BATCH_BYTES = 4_000_000
# Messages that are read at once, for several batches, and the actions that this is done for.
READ_AHEAD = 500
MAX_READ_AHEAD_ACTIONS = 8
# Queues of an action whose rights are compared with those at its start.
MAX_COVERED = 1_000
DELETED = QueueState.DELETED
decode_ids = msgspec.json.Decoder(tuple[int, ...]).decode


class BulkPage(Struct, frozen=True):
    """The messages of one step, and where the next one goes on; neither at the end of a pass."""

    records: Sequence[Record]
    cursor: str | None = None
    position: int = 0
    ranks: Mapping[int, int] = {}
    over: bool = False
    # Ids without a message that the caller may manage.
    missing: tuple[int, ...] = ()


class BulkScope(Struct, frozen=True):
    """The queues that the rights of an action cover now."""

    queues: Mapping[int, Queue]
    access: Access
    target: Queue | None = None

    def is_same(self, other: "BulkScope") -> bool:
        return self.queues == other.queues and self.list_rights() == other.list_rights()

    def list_rights(self) -> tuple[object, ...]:
        return self.access.grants, self.access.scopes, self.access.trusts


class ReadAhead(Struct, frozen=True):
    """Messages that were read for the next batches. Each item checks that its message is as read.

    `start` is the cursor before the first of them, `cursor` the one behind the last.
    """

    passes: int
    start: str | None
    scope: BulkScope
    records: Sequence[Record]
    places: Sequence[tuple[Source, Position]]
    cursor: str | None

    def fits(self, action: BulkAction, scope: BulkScope) -> bool:
        starts_here = (self.passes, self.start) == (action.passes, action.cursor)
        return starts_here and self.scope.is_same(scope)

    def drop(self, count: int, cursor: str) -> "ReadAhead":
        return replace(self, start=cursor, records=self.records[count:], places=self.places[count:])


def make_name(tenant: str, id: int) -> str:
    return f"{tenant}/{id:012d}"


class BulkReader:
    def __init__(self, store: Store, directory: QueueCache) -> None:
        self.store = store
        self.directory = directory
        self.credentials = Credentials(store)
        # How many messages the next batch may have.
        self.batch = MAX_BATCH
        # Pages read ahead, by the name of the action.
        self.ahead: dict[str, ReadAhead] = {}

    async def find_scope(self, action: BulkAction) -> BulkScope:
        """Resolves the rights of the action as they are now. Raises Forbidden."""
        access = await self.find_access(action.tenant, action.actor)
        access.check_some(Right.MANAGE)
        await self.directory.refresh()
        queues = {
            queue.id: queue
            for queue in self.directory.by_id.values()
            if queue.scope.tenant == action.tenant
            and queue.scope.name == action.scope
            and access.allows(Right.MANAGE, queue.scope.name, queue.name)
        }
        return BulkScope(queues, access, await self.find_target(action, access))

    def note_queues(self, action: BulkAction, scope: BulkScope) -> BulkAction:
        """Notes the queues of a filter. Raises Forbidden if the right on one has been lost."""
        if action.request.filter is None:
            return action
        for id in action.covers:
            queue = self.directory.by_id.get(id)
            if id not in scope.queues and queue is not None and queue.state is not DELETED:
                raise Forbidden(f"this caller may not manage queue {queue.name!r} any more")
        if action.covers:
            return action
        node = parse_filter(action.request.filter, action.as_of.now)
        return replace(
            action, covers=tuple(select_queues(node, scope.queues.values()))[:MAX_COVERED]
        )

    async def find_target(self, action: BulkAction, access: Access) -> Queue | None:
        request = action.request
        if request.verb is not BulkVerb.MOVE or request.queue is None:
            return None
        scope = request.to_scope or action.scope
        access.check(Right.PUBLISH, scope, request.queue)
        target = await self.directory.get_by_name(action.tenant, scope, request.queue)
        if (refusal := drafts.explain_refusal(target)) is not None:
            raise refusal
        return target

    async def find_access(self, tenant: str, actor: BulkActor) -> Access:
        if actor.key is not None:
            try:
                key = await self.credentials.get_key(actor.key, tenant)
            except NotFound:
                raise Forbidden(f"key {actor.key} does not exist any more") from None
            state = key.state(await self.store.now())
            if state != "active":
                raise Forbidden(f"key {actor.key} is {state}")
            return await self.credentials.make_access(tenant, key.roles, key.grants, key.scopes)
        if actor.grants is None:
            return EVERYTHING
        if actor.until <= await self.store.now():
            raise Forbidden("the token that it was started with has expired")
        return await self.credentials.make_access(tenant, (), actor.grants, actor.scopes)

    async def read(
        self, action: BulkAction, scope: BulkScope, limit: int | None = None
    ) -> BulkPage:
        """Reads the next messages, at most one batch or what the rate allows in a second."""
        if limit is None:
            rate = None if action.state is BulkState.COUNTING else action.request.rate
            limit = self.batch if rate is None else max(1, min(self.batch, int(rate)))
        if action.request.filter is None:
            return await self.read_ids(action, scope, limit)
        return await self.read_matching(action, scope, action.request.filter, limit)

    async def read_ids(self, action: BulkAction, scope: BulkScope, limit: int) -> BulkPage:
        name = make_name(action.tenant, action.id)
        found = await self.store.document(IDS, name)
        ids = () if found is None else decode_ids(found.body)
        end = action.position + min(limit, MAX_READ)
        batch = await self.cut_batch(ids[action.position : end])
        records = await self.store.get_many(batch)
        seen = [record for record in records if record.message.queue_id in scope.queues]
        known = {record.message.id for record in seen}
        position = action.position + len(batch)
        return BulkPage(
            seen,
            position=position,
            over=position >= len(ids),
            missing=tuple(id for id in batch if id not in known),
        )

    async def cut_batch(self, ids: Sequence[int]) -> Sequence[int]:
        """Keeps the first ids, as many as can be read at once by the size of their bodies."""
        room = MAX_BATCH_BYTES
        for start in range(0, len(ids), MIN_READ):
            part = ids[start : start + MIN_READ]
            sizes = await self.read_sizes(part)
            for number, id in enumerate(part, start):
                room -= sizes.get(id, 0)
                if number and room < 0:
                    return ids[:number]
        return ids

    async def read_sizes(self, ids: Sequence[int]) -> dict[int, int]:
        sizes: dict[int, int] = {}
        after: Position | None = Position()
        while after is not None:
            page = await self.store.scan(Scan(Source.IDS, after=after, ids=tuple(ids)))
            sizes |= {head.id: head.size for head in page.heads}
            after = page.next
        return sizes

    def make_search(
        self, action: BulkAction, scope: BulkScope, filter: str, limit: int
    ) -> Search | None:
        """Makes the search, or returns None if no queue can match. Raises FieldMasked."""
        node = parse_filter(filter, action.as_of.now)
        queues = select_queues(node, scope.queues.values())
        check_filter(node, queues.values(), make_reveals(scope.access))
        if not queues:
            return None
        # A copy needs the body, and a count the history. Otherwise each item checks both.
        brief = action.request.verb is not BulkVerb.MOVE and action.state is BulkState.RUNNING
        return Search(self.store, node, queues, limit, brief=brief)

    async def read_matching(
        self, action: BulkAction, scope: BulkScope, filter: str, limit: int
    ) -> BulkPage:
        name = make_name(action.tenant, action.id)
        ahead = self.ahead.pop(name, None)
        if ahead is None or not ahead.fits(action, scope):
            # A rate spreads an action over time, and what was read long ago may have changed.
            has_room = action.request.rate is None and len(self.ahead) < MAX_READ_AHEAD_ACTIONS
            count = max(limit, READ_AHEAD) if has_room else limit
            ahead = await self.search(action, scope, filter, count)
        if ahead is None:
            return BulkPage((), over=True)
        room = min(limit, count_fitting(action, ahead.records))
        ranks = {at.id: at.key for source, at in ahead.places[:room] if source is Source.READY}
        if room == len(ahead.records):
            return BulkPage(ahead.records, ahead.cursor, ranks=ranks, over=ahead.cursor is None)
        reached = SearchCursor(action.as_of.now, *ahead.places[room - 1]).encode()
        self.ahead[name] = ahead.drop(room, reached)
        return BulkPage(ahead.records[:room], reached, ranks=ranks)

    async def search(
        self, action: BulkAction, scope: BulkScope, filter: str, limit: int
    ) -> ReadAhead | None:
        """Reads the next messages that match, or returns None if no queue can match."""
        search = self.make_search(action, scope, filter, limit)
        if search is None:
            return None
        start = action.cursor
        cursor = None if start is None else decode_cursor(start)
        found = await search.run(action.as_of.now, cursor)
        return ReadAhead(
            action.passes, start, scope, found.records, tuple(search.places), found.cursor
        )

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets what was read for other actions."""
        self.ahead = {name: each for name, each in self.ahead.items() if name in names}


def make_reveals(access: Access) -> Reveals:
    return lambda scope, queue: access.allows(Right.REVEAL, scope, queue)


def count_fitting(action: BulkAction, records: Sequence[Record]) -> int:
    """Returns how many of the records can be written at once, by the size of their bodies."""
    if action.request.verb not in (BulkVerb.MOVE, BulkVerb.REDRIVE):
        return len(records)
    room = MAX_BATCH_BYTES
    for number, record in enumerate(records):
        room -= len(record.message.body)
        if room < 0 and number:
            return number
    return len(records)
