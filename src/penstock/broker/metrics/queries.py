"""Reads the metrics of queues and consumers that the historian keeps."""

from collections.abc import Callable, Iterator, Sequence

from penstock.broker.metrics.reader import MAX_ROWS, QueuePointReader, Step, make_point, make_range
from penstock.broker.metrics.rows import (
    CONSUMER_HOUR,
    HistorianState,
    QueueTotals,
    read_rows,
    read_state,
)
from penstock.broker.queue_cache import QueueCache
from penstock.errors import NotFound
from penstock.model.heads import DigestBounds
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.metrics import (
    HOUR_S,
    MINUTE_S,
    ConsumerHour,
    ConsumerMetrics,
    ConsumerStats,
    LiveDepth,
    MetricPoint,
    QueueMetrics,
)
from penstock.model.queue import Queue
from penstock.model.structs import copy_fields
from penstock.rules.metrics import Deltas, add_consumer, fold_metrics, time_rows
from penstock.rules.validation import clip
from penstock.store import Store

# Rows that are read beyond what the historian has counted.
MAX_PENDING_ROWS = 2_000
# Queues whose minutes are added up: those that worked last.
MAX_SUMMED_QUEUES = 200
Allows = Callable[[str, str], bool]


class MetricsReader:
    """Metrics of one tenant's queues. `allows` limits them to queues that the caller may see."""

    def __init__(
        self, store: Store, directory: QueueCache, tenant: str, allows: Allows | None = None
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.allows = allows or (lambda scope, queue: True)

    async def queue(
        self,
        name: str,
        *,
        type: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        step: float = MINUTE_S,
        scope: str = "default",
    ) -> QueueMetrics:
        queue = await self.directory.get(self.tenant, scope, name)
        if not self.allows(scope, name):
            raise NotFound(f"no queue named {clip(name)}")
        span = make_range(since, until, step, await self.store.now())
        state, pending, final_until = await self.read_pending()
        reader = QueuePointReader(self.store, queue, span, type)
        totals = state.totals.get(queue.id, QueueTotals())
        points = await reader.read(pending, totals, final_until)
        return QueueMetrics(
            queue=queue.name,
            scope=scope,
            type=type,
            step=span.step,
            final_until=final_until,
            points=points,
            live=await self.read_live(queue),
        )

    async def sum_hour(self, queues: Sequence[Queue]) -> list[MetricPoint]:
        """Adds the minutes of the last hour of these queues up."""
        span = make_range(None, None, MINUTE_S, await self.store.now())
        state, pending, final_until = await self.read_pending()
        never = QueueTotals()
        latest = sorted(queues, key=lambda each: -state.totals.get(each.id, never).worked_at)
        steps = [Step() for _ in span.begins]
        for queue in latest[:MAX_SUMMED_QUEUES]:
            reader = QueuePointReader(self.store, queue, span, None)
            await reader.add_minutes(pending)
            for step, other in zip(steps, reader.steps, strict=True):
                step.add(other)
        return [
            make_point(begin, span.step, step, (0, 0), final_until)
            for begin, step in zip(span.begins, steps, strict=True)
        ]

    async def read_live(self, queue: Queue) -> LiveDepth:
        depths = await self.store.depths(0)
        since = await self.store.waiting_since()
        places = {
            "ready": "ready", "scheduled": "scheduled", "claimed": "lease", "dead": "dead",
        }  # fmt: skip
        counts = {name: depths.get((queue.id, place), 0) for name, place in places.items()}
        return LiveDepth(**counts, oldest_at=since.get(queue.id))

    async def read_pending(self) -> tuple[HistorianState, Deltas, Moment]:
        """Reads what the historian has not counted yet, up to a limit."""
        state, _ = await read_state(self.store)
        now = await self.store.now()
        page = await self.store.digest(state.cursor, MAX_PENDING_ROWS, DigestBounds())
        if not page.count:
            return state, Deltas(), now
        return state, fold_metrics(page, time_rows(page.rest), {}), state.reached

    async def consumers(
        self,
        *,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        scope: str = "default",
    ) -> ConsumerMetrics:
        """Adds up whole hours; consumers are kept for two days."""
        wanted = None
        if queue is not None:
            wanted = (await self.directory.get(self.tenant, scope, queue)).id
        span = make_range(since, until, HOUR_S, await self.store.now())
        _, pending, final_until = await self.read_pending()
        first, last = f"{span.begin:012d}", f"{span.end:012d}"
        found: dict[tuple[int, str], ConsumerHour] = {}
        rows = await read_rows(self.store, CONSUMER_HOUR, first, last, MAX_ROWS)
        stored = ((name.split("/", 2), row) for name, row in rows)
        named = [((int(hour), int(id), consumer), row) for (hour, id, consumer), row in stored]
        for (hour, queue_id, consumer), row in (*named, *pending.consumers.items()):
            if span.find(hour) is not None and wanted in (None, queue_id):
                add_consumer(found.setdefault((queue_id, consumer), ConsumerHour()), row)
        await self.directory.refresh()
        listed = [each for key in sorted(found) for each in self.describe(scope, key, found[key])]
        return ConsumerMetrics(final_until=final_until, consumers=listed)

    def describe(
        self, scope: str, key: tuple[int, str], row: ConsumerHour
    ) -> Iterator[ConsumerStats]:
        """Yields the statistics, if the queue is in the scope and the caller may see it."""
        queue = self.directory.by_id.get(key[0])
        if queue is None or (queue.scope.tenant, queue.scope.name) != (self.tenant, scope):
            return
        if self.allows(scope, queue.name):
            yield copy_fields(
                ConsumerStats,
                row,
                consumer=key[1],
                queue=queue.name,
                scope=scope,
                busy=row.busy / MICROS_PER_SECOND,
                run_max=row.run_max / MICROS_PER_SECOND,
            )
