"""Completes filters from cached queues and recent history, never by a scan."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.broker.queues import QueueAdmin
from penstock.model.activity import Heading
from penstock.model.message import HistoryRow
from penstock.model.queue import Queue
from penstock.rules.filter_completion import FilterSuggestion, complete
from penstock.rules.filter_match import find_error_kind
from penstock.rules.masking import list_hidden
from penstock.store import Store

MAX_ROWS = 500
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
    """Completes filters over the queues of `admin`."""

    def __init__(self, admin: QueueAdmin, recent: RecentHistory) -> None:
        self.admin = admin
        self.recent = recent

    async def complete(self, text: str, position: int | None = None) -> FilterSuggestion:
        """Completes the word that ends at the position, or at the end of the text."""
        queues = {queue.id: queue for queue in await self.admin.queues()}
        hidden = {
            id for id, queue in queues.items() if "error" in list_hidden(queue, self.admin.reveals)
        }
        seen = [each for each in await self.recent.read() if each.row.queue_id in queues]
        values = collect_values(queues.values(), seen, hidden)
        return complete(text, len(text) if position is None else position, values)


def collect_values(
    queues: Iterable[Queue], samples: Iterable[HistorySample], hidden: Iterable[int]
) -> Mapping[str, set[str]]:
    """Collects the values that the caller may see, by field."""
    values: dict[str, set[str | None]] = defaultdict(set)
    for queue in queues:
        values["queue"].add(queue.name)
        values["scope"].add(queue.scope.name)
    for each in samples:
        values["consumer"].add(each.row.consumer)
        values["reason"].add(each.row.reason)
        if each.row.queue_id not in hidden:
            values["error.kind"].add(find_error_kind(each.row.error))
        if each.heading is not None:
            values["type"].add(each.heading.type)
            values["correlation"].add(each.heading.correlation_id)
    return {field: {text for text in texts if text} for field, texts in values.items()}
