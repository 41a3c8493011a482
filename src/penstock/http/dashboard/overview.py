"""Assembles the overview: figures of each queue, totals, and what needs attention."""

from collections.abc import Sequence

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
from penstock.model.message import MICROS_PER_SECOND, Moment
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
    # Ids of queues whose errors the caller may not see.
    masked: frozenset[int] = frozenset()

    def count(self, queue: Queue, place: str) -> int:
        return self.snapshot.depths.get((queue.id, place), 0)

    def find_workers(self, queue: Queue) -> list[WorkerInfo]:
        return [worker for worker in self.workers if queue.name in worker.queues]


def make_overview(inputs: OverviewInputs, limit: int, contains: str = "") -> Overview:
    """Shows the busiest queues whose names contain a text, and first the one that is called so.

    Totals are those of all queues.
    """
    last = find_bucket(inputs.now)
    figures = [make_figures(inputs, queue, last) for queue in inputs.queues]
    facts = [
        make_facts(inputs, queue, each) for queue, each in zip(inputs.queues, figures, strict=True)
    ]
    wanted = [each for each in figures if contains.lower() in each.queue.lower()]
    ranked = sorted(wanted, key=lambda each: (each.queue != contains, -weigh(each), each.queue))
    return Overview(
        now=to_datetime(inputs.now),
        bucket_seconds=BUCKET_S,
        totals=make_totals(inputs, figures, last),
        attention=[
            AttentionView(
                each.kind,
                each.severity,
                each.subject,
                each.text,
                each.detail,
                to_optional_datetime(each.at),
            )
            for each in find_attention(facts, inputs.failing_agents)
        ],
        queues=sorted(ranked[:limit], key=lambda each: each.queue),
        queue_count=len(figures),
    )


def weigh(figures: QueueFigures) -> float:
    """Says how much a queue has to show."""
    waiting = figures.ready + figures.scheduled + figures.claimed + figures.dead
    return waiting + sum(figures.completed) + sum(figures.failed)


def make_figures(inputs: OverviewInputs, queue: Queue, last: int) -> QueueFigures:
    series = inputs.series.get(queue.id) or QueueSeries(last)
    workers = inputs.find_workers(queue)
    return QueueFigures(
        queue=queue.name,
        state=queue.state,
        scope_paused=queue.scope.paused,
        ordering=queue.settings.ordering,
        kind=queue.settings.kind,
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


def make_facts(inputs: OverviewInputs, queue: Queue, figures: QueueFigures) -> QueueFacts:
    since = inputs.snapshot.since.get(queue.id)
    series = inputs.series.get(queue.id)
    died, error = series.find_deaths(find_bucket(inputs.now)) if series else (0, None)
    return QueueFacts(
        queue=queue.name,
        ready=figures.ready,
        dead=figures.dead,
        died=died,
        common_error=None if queue.id in inputs.masked else error,
        waits=None if since is None else (inputs.now - since) / MICROS_PER_SECOND,
        since=since,
        died_at=series.died_at if series else None,
        serves=queue.serves and not queue.scope.paused,
        has_worker=figures.workers > 0,
    )


def make_totals(
    inputs: OverviewInputs, figures: Sequence[QueueFigures], last: int
) -> OverviewTotals:
    ids = {queue.id for queue in inputs.queues}
    shown = [series for id, series in inputs.series.items() if id in ids]
    begun = min((series.begun for series in shown), default=last)
    published = sum_series(shown, last, lambda series: series.published)
    oldest = [moment for id, moment in inputs.snapshot.since.items() if id in ids]
    samples = sum_samples(shown, last, find_bucket(inputs.snapshot.at))
    return OverviewTotals(
        ready=sum(each.ready for each in figures),
        scheduled=sum(each.scheduled for each in figures),
        claimed=sum(each.claimed for each in figures),
        dead=sum(each.dead for each in figures),
        slots=sum(worker.slots for worker in inputs.workers),
        workers=len(inputs.workers),
        oldest_at=to_optional_datetime(min(oldest, default=None)),
        published_rate=sum(each.published_rate for each in figures),
        completed_rate=sum(each.completed_rate for each in figures),
        failed_rate=sum(each.failed_rate for each in figures),
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
