"""Activity and traces over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from urllib.parse import quote

import msgspec

from penstock.client.mapping import FenceLedger, make_record
from penstock.client.transport import RemoteGroup, Transport
from penstock.errors import StoreUnreachable
from penstock.model.activity import ActivityEntry, ActivityPage, Trace, TracedMessage
from penstock.model.message import NEVER, Moment
from penstock.retry_policies import REMOTE_CALL, Retries
from penstock.rules.events import ACT, ACTIVITY_KINDS
from penstock.rules.filter_completion import FilterSuggestion
from penstock.wire.activity import (
    ActivityPageView,
    ActivityView,
    FilterCompletion,
    TracedMessageView,
    TraceView,
    make_activity_entry,
)
from penstock.wire.fields import to_datetime, to_optional_moment


def make_followed_entry(event: str) -> ActivityEntry | None:
    """Returns None for events about the stream itself."""
    fields = msgspec.json.decode(event, type=dict[str, object])
    if fields["kind"] not in ACTIVITY_KINDS:
        return None
    source = "audit" if fields["kind"] == ACT else "history"
    view = msgspec.convert({**fields, "source": source, "position": "0"}, ActivityView)
    return make_activity_entry(view)


class RemoteFilters(RemoteGroup):
    async def complete(self, text: str, position: int | None = None) -> FilterSuggestion:
        """Completes the word that ends at the position, or at the end of the text."""
        asked = {"text": text, "position": position}
        found = await self.send("GET", "/v1/filter/complete", gives=FilterCompletion, query=asked)
        return FilterSuggestion(found.start, found.items)


class RemoteActivity(RemoteGroup):
    def __init__(self, transport: Transport, ledger: FenceLedger) -> None:
        super().__init__(transport)
        self.ledger = ledger

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
        """Lists what happened, newest first. The list is over when it has no cursor."""
        asked = {
            "filter": filter or None,
            "kind": list(kinds),
            "since": to_datetime(since).isoformat() if since else None,
            "until": None if until == NEVER else to_datetime(until).isoformat(),
            "cursor": cursor,
            "limit": limit,
        }
        page = await self.send("GET", "/v1/activity", gives=ActivityPageView, query=asked)
        entries = [make_activity_entry(view) for view in page.entries]
        return ActivityPage(entries, page.cursor, to_optional_moment(page.scanned_to))

    async def follow(
        self, filter: str = "", *, kinds: Sequence[str] = ()
    ) -> AsyncGenerator[ActivityEntry]:
        """Yields what happens from now on, within seconds.

        Entries have no position. After a lost connection some may come twice, and acts be missed.
        """
        asked = {"filter": filter or None, "kind": list(kinds or ACTIVITY_KINDS)}
        last: str | None = None
        retries: Retries | None = None
        while True:
            try:
                query = {**asked, "last_event_id": last}
                async with self.transport.stream("GET", "/v1/events", query=query) as response:
                    retries = None
                    async for line in response.content:
                        name, _, value = line.decode().rstrip("\n").partition(": ")
                        last = value if name == "id" else last
                        if name == "data" and (entry := make_followed_entry(value)) is not None:
                            yield entry
            except StoreUnreachable:
                retries = retries or REMOTE_CALL.begin()
                if not await retries.again():
                    raise

    async def trace(self, correlation_id: str) -> Trace:
        """Returns the messages of a correlation id as a tree, and everything that happened."""
        path = f"/v1/trace/{quote(correlation_id, safe='')}"
        found = await self.send("GET", path, gives=TraceView)
        return Trace(
            found.correlation_id,
            [self._make_traced(view) for view in found.messages],
            [make_activity_entry(view) for view in found.events],
            found.complete,
        )

    def _make_traced(self, view: TracedMessageView) -> TracedMessage:
        number = self.ledger.assign_number(view.scope, view.message.queue)
        return TracedMessage(
            make_record(view.message, number),
            view.scope,
            view.message.queue,
            view.depth,
            None if view.parent is None else int(view.parent),
        )
