"""Activity: history and audit log in one list, and the trace of a correlation id."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

from msgspec.structs import replace

from penstock.broker.activity.reader import (
    ActivityCursor,
    ActivityQuery,
    BackwardReading,
    ForwardReading,
    Selection,
    Visible,
    decode_cursor,
)
from penstock.broker.audit import AuditLog, AuditQuery
from penstock.broker.queues import QueueAdmin
from penstock.broker.search import join_terms, search_messages, select_queues
from penstock.errors import InvalidInput
from penstock.model.activity import ActivityEntry, ActivityPage, Trace
from penstock.model.documents import AuditEntry
from penstock.model.fields import MAX_BATCH, MAX_WORD_LENGTH
from penstock.model.message import NEVER, Moment, Record
from penstock.model.queue import Queue
from penstock.rules import validation
from penstock.rules.events import ACT, ACTIVITY_KINDS, make_act_entry, parse_event_filter
from penstock.rules.masking import check_filter, list_hidden, mask_record
from penstock.rules.trace import arrange, list_events
from penstock.store import Store

MAX_TRACED = 1_000
TRACE_PAGE = 100
MAX_TRACED_ACTS = 1_000
FOLLOW_INTERVAL_S = 0.5


class ActivityLog:
    """Reads the activity of the queues of `admin`, and acts that are `visible` to the caller."""

    def __init__(
        self, store: Store, admin: QueueAdmin, visible: Visible | None = lambda act: True
    ) -> None:
        self.store = store
        self.admin = admin
        self.visible = visible

    async def find(
        self,
        filter: str = "",
        *,
        kinds: Sequence[str] = (),
        since: Moment = 0,
        until: Moment = NEVER,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ActivityPage:
        """Lists what happened, newest first. `kinds` are kinds of live events, or `act`.

        A page may have fewer entries than `limit`. The list is over when it has no cursor.
        """
        validation.check_number("limit", limit, 1, MAX_BATCH, whole=True, needed=True)
        start = None if cursor is None else decode_cursor(cursor)
        selection = await self._select(ActivityQuery(filter, tuple(kinds), since, until))
        if start is None:
            start = ActivityCursor((await self.store.horizon()).history + 1)
        return await BackwardReading(self.store, selection, start).run(limit)

    async def follow(
        self, filter: str = "", *, kinds: Sequence[str] = ()
    ) -> AsyncGenerator[ActivityEntry]:
        """Yields what happens from now on, within a second."""
        selection = await self._select(ActivityQuery(filter, tuple(kinds)))
        end = (await self.store.horizon()).history
        reading = ForwardReading(self.store, selection, end)
        await reading.start()
        while True:
            for entry in await reading.read():
                yield entry
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    async def _select(self, query: ActivityQuery) -> Selection:
        """Decides the rights first: queues that the caller may not read are left out."""
        if wrong := set(query.kinds) - set(ACTIVITY_KINDS):
            raise InvalidInput(
                f"unknown kind {', '.join(sorted(wrong))}; use {', '.join(ACTIVITY_KINDS)}"
            )
        node = parse_event_filter(query.filter, await self.store.now())
        queues = select_queues(node, (await self._queues()).values())
        reveals = self.admin.reveals
        check_filter(node, queues.values(), reveals)
        hidden = {id for id, queue in queues.items() if "error" in list_hidden(queue, reveals)}
        acts = self.visible if not query.kinds or ACT in query.kinds else None
        return Selection(query, node, self.admin.tenant, queues, hidden, acts)

    async def _queues(self) -> dict[int, Queue]:
        return {queue.id: queue for queue in await self.admin.queues()}

    async def trace(self, correlation_id: str) -> Trace:
        """Returns the messages of a correlation id as a tree, and everything that happened."""
        validation.check_text("correlation_id", correlation_id, MAX_WORD_LENGTH)
        queues = await self._queues()
        records, more = await self._read_correlated(correlation_id, queues)
        messages = arrange(records, queues)
        acts, more_acts = await self._read_acts(correlation_id, records)
        events = [*list_events(messages, queues), *map(make_act_entry, acts)]
        events.sort(key=lambda event: event.order)
        return Trace(correlation_id, messages, events, not (more or more_acts))

    async def _read_correlated(
        self, correlation_id: str, queues: Mapping[int, Queue]
    ) -> tuple[list[Record], bool]:
        """Reads at most MAX_TRACED messages without their bodies. True if there are more."""
        filter, cursor = join_terms("", correlation=correlation_id), None
        records: list[Record] = []
        while len(records) < MAX_TRACED:
            page = await search_messages(
                self.store, filter, queues.values(), cursor, TRACE_PAGE, self.admin.reveals
            )
            records += [self._strip(record, queues) for record in page.records]
            cursor = page.cursor
            if cursor is None:
                return records, False
        return records, True

    def _strip(self, record: Record, queues: Mapping[int, Queue]) -> Record:
        """Removes the body, and masked values of the rest."""
        bare = replace(record, message=replace(record.message, body=b""))
        hidden = list_hidden(queues[record.message.queue_id], self.admin.reveals)
        return mask_record(bare, hidden).record

    async def _read_acts(
        self, correlation_id: str, records: Collection[Record]
    ) -> tuple[list[AuditEntry], bool]:
        """Reads the acts on these messages, and those of the request with this id."""
        visible = self.visible
        if visible is None:
            return [], False
        ids = {record.message.id for record in records}
        first = min((record.message.created_at for record in records), default=0)

        def belongs(act: AuditEntry) -> bool:
            traced = act.request_id == correlation_id or make_act_entry(act).id in ids
            return traced and visible(act)

        query = AuditQuery(tenant=self.admin.tenant, since=first, limit=MAX_TRACED_ACTS)
        found = await AuditLog(self.store).find(query, belongs)
        return found.entries, found.before is not None
