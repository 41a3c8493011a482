"""Completes filters from cached queues and recent history, never by a scan."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice

from msgspec import Struct

from penstock.broker.queues import QueueAdmin, is_allowed
from penstock.model.activity import Heading
from penstock.model.message import HistoryRow
from penstock.model.queue import Queue, QueueState
from penstock.rules.filter_completion import MAX_ITEMS, FilterSuggestion, complete
from penstock.rules.filter_match import find_error_kind
from penstock.rules.masking import list_hidden
from penstock.store import Store

MAX_ROWS = 500
# Queues whose scopes are offered.
MAX_QUEUES_CHECKED = 10_000
CACHE_S = 5.0


class HistorySample(Struct, frozen=True):
    """A recent history row, and the type of its message."""

    row: HistoryRow
    heading: Heading | None


class RecentHistory:
    """The last rows of history, read again after a few seconds at the earliest."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.samples: list[HistorySample] = []
        self.fresh_until = 0.0

    async def read(self) -> list[HistorySample]:
        if time.monotonic() >= self.fresh_until:
            self.samples = await self.read_samples()
            self.fresh_until = time.monotonic() + CACHE_S
        return self.samples

    async def read_samples(self) -> list[HistorySample]:
        end = (await self.store.horizon()).history
        rows = await self.store.past(end + 1, max(0, end - MAX_ROWS), MAX_ROWS)
        headings = await self.store.headings(list({row.id for row in rows}))
        return [HistorySample(row, headings.get(row.id)) for row in rows]


class FilterCompleter:
    """Completes filters over the queues that the caller of `admin` may read."""

    def __init__(self, admin: QueueAdmin, recent: RecentHistory) -> None:
        self.admin = admin
        self.recent = recent

    async def complete(self, text: str, position: int | None = None) -> FilterSuggestion:
        """Completes the word that ends at the position, or at the end of the text."""
        await self.admin.directory.refresh()
        samples = await self.recent.read()
        allowed = self.list_allowed({each.row.queue_id for each in samples})
        seen = [each for each in samples if each.row.queue_id in allowed]
        values = collect_values(seen, {id for id, queue in allowed.items() if self.hides(queue)})

        def find_values(field: str, typed: str) -> Iterable[str]:
            if field == "queue":
                return islice(self.find_queue_names(typed), MAX_ITEMS)
            return self.find_scopes(typed) if field == "scope" else values.get(field, ())

        return complete(text, len(text) if position is None else position, find_values)

    def list_allowed(self, queue_ids: Iterable[int]) -> dict[int, Queue]:
        known = self.admin.directory.by_id
        return {id: known[id] for id in queue_ids if id in known and self.allows(known[id])}

    def allows(self, queue: Queue) -> bool:
        own = queue.scope.tenant == self.admin.tenant and queue.state is not QueueState.DELETED
        return own and is_allowed(self.admin, queue.scope.name, queue.name)

    def hides(self, queue: Queue) -> bool:
        return "error" in list_hidden(queue, self.admin.reveals)

    def find_queue_names(self, typed: str) -> Iterator[str]:
        """Finds queues in the order of their names. Only those that are offered are checked."""
        queues = self.admin.directory.by_id.values()
        found = [queue for queue in queues if queue.name.startswith(typed)]
        found.sort(key=lambda queue: queue.name)
        return (name for name, group in groupby(found, lambda queue: queue.name)
                if any(map(self.allows, group)))  # fmt: skip

    def find_scopes(self, typed: str) -> set[str]:
        found: set[str] = set()
        queues = self.admin.directory.by_id.values()
        own = (queue for queue in queues if queue.scope.tenant == self.admin.tenant)
        for queue in islice(own, MAX_QUEUES_CHECKED):
            name = queue.scope.name
            if name not in found and name.startswith(typed) and self.allows(queue):
                found.add(name)
        return found


def collect_values(
    samples: Iterable[HistorySample], hidden: Iterable[int]
) -> Mapping[str, set[str]]:
    """Collects the values that the caller may see, by field."""
    values: dict[str, set[str | None]] = defaultdict(set)
    for each in samples:
        values["consumer"].add(each.row.consumer)
        values["reason"].add(each.row.reason)
        if each.row.queue_id not in hidden:
            values["error.kind"].add(find_error_kind(each.row.error))
        if each.heading is not None:
            values["type"].add(each.heading.type)
            values["correlation"].add(each.heading.correlation_id)
    return {field: {text for text in texts if text} for field, texts in values.items()}
