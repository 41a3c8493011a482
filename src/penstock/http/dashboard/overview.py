"""Assembles the overview: figures of each queue, totals, and what needs attention."""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import nsmallest

from msgspec import Struct

from penstock.http.dashboard.series import (
    BUCKET_S,
    BUCKETS,
    QueueSeries,
    find_bucket,
    list_buckets,
    sum_series,
)
from penstock.http.metrics.queue_stats import QueueSnapshot
from penstock.model.message import MICROS_PER_SECOND, TICKET_PLACES, Moment
from penstock.model.queue import Queue
from penstock.model.store_types import WorkerInfo
from penstock.rules.attention import QueueFacts, find_attention
from penstock.wire.dashboard import AttentionView, Overview, OverviewTotals, QueueFigures
from penstock.wire.fields import to_datetime, to_optional_datetime


class OverviewInputs(Struct, frozen=True):
    """The data that the caller may see, as of `now`."""

    now: Moment
    queues: Sequence[Queue]
    workers: Sequence[WorkerInfo]
    snapshot: QueueSnapshot
    series: dict[int, QueueSeries]
    failing_agents: Sequence[tuple[str, str]]
    # True for a queue whose errors the caller may see.
    shows_errors: Callable[[Queue], bool] = lambda queue: True

    @property
    def last(self) -> int:
        return find_bucket(self.now)

    def count(self, queue: Queue, place: str) -> int:
        return self.snapshot.depths.get((queue.id, place), 0)

    def find_workers(self, queue: Queue) -> list[WorkerInfo]:
        return [worker for worker in self.workers if worker.serves(queue)]


def make_overview(inputs: OverviewInputs, limit: int, contains: str = "") -> Overview:
    """Shows the busiest queues whose names contain a text, and first the one that is called so.

    Totals are those of all queues. Only the queues that are shown get figures: there may be many.
    """
    wanted = [queue for queue in inputs.queues if contains.lower() in queue.name.lower()]
    shown = nsmallest(
        limit,
        wanted,
        key=lambda queue: (queue.name != contains, -rank_by_load(inputs, queue), queue.name),
    )
    return Overview(
        now=to_datetime(inputs.now),
        bucket_seconds=BUCKET_S,
        totals=make_totals(inputs),
        attention=list_attention(inputs),
        queues=[make_figures(inputs, queue) for queue in sorted(shown, key=lambda each: each.name)],
        queue_count=len(inputs.queues),
    )


def rank_by_load(inputs: OverviewInputs, queue: Queue) -> int:
    """Says how much a queue has to show."""
    unfinished = sum(inputs.count(queue, place) for place in TICKET_PLACES)
    series = inputs.series.get(queue.id)
    return unfinished if series is None else unfinished + series.count_ends(inputs.last)


def list_attention(inputs: OverviewInputs) -> list[AttentionView]:
    counted = {queue_id for queue_id, _ in inputs.snapshot.depths} | {*inputs.series}
    facts = [make_facts(inputs, queue) for queue in inputs.queues if queue.id in counted]
    return [
        AttentionView(
            each.kind,
            each.severity,
            each.subject,
            each.text,
            each.detail,
            to_optional_datetime(each.at),
        )
        for each in find_attention(facts, inputs.failing_agents)
    ]


def make_figures(inputs: OverviewInputs, queue: Queue) -> QueueFigures:
    last = inputs.last
    series = inputs.series.get(queue.id) or QueueSeries(last)
    workers = inputs.find_workers(queue)
    return QueueFigures(
        queue=queue.name,
        state=queue.state,
        scope_paused=queue.scope.paused,
        ordering=queue.settings.ordering,
        kind=queue.settings.kind,
        keyed=series.is_keyed(last),
        ready=inputs.count(queue, "ready"),
        scheduled=inputs.count(queue, "scheduled"),
        claimed=inputs.count(queue, "lease"),
        dead=inputs.count(queue, "dead"),
        oldest_at=to_optional_datetime(inputs.snapshot.since.get(queue.id)),
        slots=sum(worker.slots for worker in workers),
        workers=len(workers),
        published_rate=series.compute_rate(series.published, last),
        completed_rate=series.compute_rate(series.completed, last),
        failed_rate=series.compute_rate(series.failed, last),
        died=series.find_deaths(last)[0],
        published=series.list_published(last),
        completed=[series.completed[each] for each in list_buckets(last)],
        failed=[series.failed[each] for each in list_buckets(last)],
    )


def make_facts(inputs: OverviewInputs, queue: Queue) -> QueueFacts:
    since = inputs.snapshot.since.get(queue.id)
    series = inputs.series.get(queue.id)
    died, error = series.find_deaths(inputs.last) if series else (0, None)
    return QueueFacts(
        queue=queue.name,
        ready=inputs.count(queue, "ready"),
        dead=inputs.count(queue, "dead"),
        died=died,
        common_error=error if error and inputs.shows_errors(queue) else None,
        waits=None if since is None else (inputs.now - since) / MICROS_PER_SECOND,
        since=since,
        died_at=series.died_at if series else None,
        serves=queue.serves and not queue.scope.paused,
        has_worker=bool(inputs.find_workers(queue)),
    )


def make_totals(inputs: OverviewInputs) -> OverviewTotals:
    last = inputs.last
    ids = {queue.id for queue in inputs.queues}
    shown = [series for id, series in inputs.series.items() if id in ids]
    begun = min((series.begun for series in shown), default=last)
    published = sum_series(shown, last, lambda series: series.published)
    oldest = [moment for id, moment in inputs.snapshot.since.items() if id in ids]
    samples = sum_samples(shown, last, find_bucket(inputs.snapshot.at))
    counts: Counter[str] = Counter()
    for (id, place), count in inputs.snapshot.depths.items():
        counts[place] += count if id in ids else 0
    return OverviewTotals(
        ready=counts["ready"],
        scheduled=counts["scheduled"],
        claimed=counts["lease"],
        dead=counts["dead"],
        slots=sum(worker.slots for worker in inputs.workers),
        workers=len(inputs.workers),
        oldest_at=to_optional_datetime(min(oldest, default=None)),
        published_rate=sum(each.compute_rate(each.published, last) for each in shown),
        completed_rate=sum(each.compute_rate(each.completed, last) for each in shown),
        failed_rate=sum(each.compute_rate(each.failed, last) for each in shown),
        published=[
            count if bucket >= begun else None
            for count, bucket in zip(published, list_buckets(last), strict=True)
        ],
        completed=sum_series(shown, last, lambda series: series.completed),
        failed=sum_series(shown, last, lambda series: series.failed),
        waiting=[total.ready for total in samples],
        running=[total.claimed for total in samples],
        oldest=[total.oldest for total in samples],
    )


class SampleTotal(Struct):
    ready: int = 0
    claimed: int = 0
    oldest: float = 0.0


def sum_samples(shown: Sequence[QueueSeries], last: int, counted: int) -> list[SampleTotal]:
    """Sums the samples of each bucket; `oldest` is the longest wait at the bucket's end.

    Buckets after the last count are like it.
    """
    first = last - BUCKETS + 1
    totals = [SampleTotal() for _ in range(BUCKETS)]
    for series in shown:
        for bucket, sample in series.samples.items():
            if not first <= bucket <= last:
                continue
            total = totals[bucket - first]
            total.ready += sample.ready
            total.claimed += sample.claimed
            if sample.since is not None:
                waited = (bucket + 1) * BUCKET_S - sample.since / MICROS_PER_SECOND
                total.oldest = max(total.oldest, round(waited, 1))
    known = max(0, min(counted, last) - first)
    return totals[: known + 1] + [totals[known]] * (BUCKETS - known - 1)
