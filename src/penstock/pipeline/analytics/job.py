"""Queue analytics: computes the result tables of a lake for new and changed hours.

An hour is recomputed from all its rows, so many small runs give the same result as a large one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import chain

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.model.anomalies import AnomalyThresholds
from penstock.model.message import Moment
from penstock.model.queue import Queue
from penstock.pipeline.analytics.anomaly_job import AnomalyJob
from penstock.pipeline.analytics.attempts import make_attempts, make_limits
from penstock.pipeline.analytics.metrics import make_consumers, make_metrics
from penstock.pipeline.analytics.partitions import PartitionWriter
from penstock.pipeline.analytics.time import HourSpan, filter_between, filter_hours, make_span
from penstock.pipeline.analytics.triage import make_triage
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.delta_log import sync_delta, sync_results
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import Manifest
from penstock.pipeline.lake.result_tables import Results
from penstock.pipeline.periods import DAY, to_day
from penstock.pipeline.session import tune
from penstock.pipeline.store_access import make_absolute_url, make_identity, use_store
from penstock.store import Store
from penstock.stores import urls

STEPS = ("attempts", "metrics", "consumers", "backlog", "triage", "anomalies")
# Tables computed in parallel, because planning one leaves the cores idle.
MAX_PARALLEL_TABLES = 2


class AnalyticsResult(Struct, frozen=True):
    """The current results, and the hours that were recomputed."""

    results: Results
    hours: tuple[int, ...] = ()
    attempts: int = 0


def analyze(
    spark: SparkSession,
    url: str,
    lake: str,
    rules: AnomalyThresholds | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> AnalyticsResult:
    """Updates the results. A crash leaves the old results, and the next run continues."""
    url = make_absolute_url(url)
    with lakes.hold_lock(lake, use_store(url, make_identity)) as place:
        # Before the sweep, so that no Delta log names a removed file.
        sync_delta(place)
        result_tables.sweep(place)
        job = AnalyticsJob(
            spark, place, rules or AnomalyThresholds(), use_store(url, partial(read_source, url))
        )
        done = job.run(progress)
        sync_results(place)
        return done


class StoreSnapshot(Struct, frozen=True):
    """The store at the start of a run."""

    name: str
    read_at: Moment
    queues: list[Queue]


async def read_source(url: str, store: Store) -> StoreSnapshot:
    return StoreSnapshot(urls.redact_url(url), await store.now(), list(await store.queues()))


class AnalyticsJob:
    """One analytics run over one lake."""

    def __init__(
        self, spark: SparkSession, lake: Lake, rules: AnomalyThresholds, source: StoreSnapshot
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.rules = rules
        self.source = source
        self.chain = lake.manifests()
        # Before the newest results are read, because another run may publish meanwhile.
        self.number = result_tables.choose_next_number(lake)
        self.old = choose_usable(result_tables.read_newest(lake), self.chain, lake, rules)
        self.fresh = [each for each in self.chain if each.first > self.old.through]

    def run(self, progress: Callable[[str], None]) -> AnalyticsResult:
        same_rules = self.old.rules == self.rules.digest
        if not self.fresh and (same_rules or not self.chain):
            return AnalyticsResult(self.old)
        concerned = self.fresh if same_rules else self.chain
        with tune(self.spark, count_rows(concerned)):
            make = PartitionWriter(self.spark, self.lake, self.old, self.number)
            return self.make_tables(make, self.span(make, concerned), progress)

    def span(self, make: PartitionWriter, concerned: Sequence[Manifest]) -> HourSpan:
        return make_span(make.source("history", concerned), make.source("message", concerned))

    def make_tables(
        self, make: PartitionWriter, span: HourSpan, progress: Callable[[str], None]
    ) -> AnalyticsResult:
        new = self.make_attempts(make, span)
        progress("attempts")
        tables = AnalyticsTables(make, make.source("message", self.chain), span, self.rules)
        tables.remake_metrics()
        progress("metrics")
        for step in run_in_parallel(tables.steps()):
            progress(step)
        judge = AnomalyJob(make, self.rules, span, self.old.reached, self.source.queues)
        judge.remake(tables.claims(), tables.attempt_rows(), tables.messages())
        progress("anomalies")
        done = self.publish(make, span)
        return AnalyticsResult(done, span.hours, new)

    def make_attempts(self, make: PartitionWriter, span: HourSpan) -> int:
        """Returns the number of new attempts."""
        if not self.fresh:
            return 0
        history = make.source("history", self.fresh)
        ids = span.first_id, span.last_id
        messages = filter_between(make.source("message", self.chain), *ids)
        rests = filter_between(make.source("history", self.chain).filter("not final"), *ids)
        limits = make_limits(self.spark, self.source.queues)
        today = to_day(self.compute_reached(span) // 1_000_000)
        merged = result_tables.choose_days_to_merge(self.old.list_files("attempt"), today)
        return make.append("attempt", make_attempts(history, messages, rests, limits), merged)

    def compute_reached(self, span: HourSpan) -> Moment:
        return max(self.old.reached, span.reached)

    def publish(self, make: PartitionWriter, span: HourSpan) -> Results:
        return result_tables.publish(
            self.lake,
            Results(
                schema=result_tables.VERSION,
                lake=self.lake.label.id,
                number=make.number,
                through=self.chain[-1].last,
                reached=self.compute_reached(span),
                rules=self.rules.digest,
                files=tuple(make.files),
                store=self.source.name,
                made_at=self.source.read_at,
            ),
        )


class AnalyticsTables:
    """Tables that are computed from attempts and messages."""

    def __init__(
        self, make: PartitionWriter, messages: DataFrame, span: HourSpan, rules: AnomalyThresholds
    ) -> None:
        self.make = make
        self.all_messages = messages
        self.hours = span.hours
        self.rules = rules

    def attempt_rows(self) -> DataFrame:
        return filter_hours(self.make.table("attempt", list_days(self.hours)), "at", self.hours)

    def claims(self) -> DataFrame:
        """Reads all days, because the clocks of claim and end may differ."""
        return filter_hours(self.make.table("attempt"), "claimed_at", self.hours)

    def messages(self) -> DataFrame:
        return filter_hours(self.all_messages, "created_at", self.hours)

    def steps(self) -> dict[str, Callable[[], None]]:
        """Returns steps that are independent of each other."""
        return {
            "triage": self.remake_triage,
            "consumers": self.remake_consumers,
            "backlog": self.remake_backlog,
        }

    def remake_metrics(self) -> None:
        made = make_metrics(self.attempt_rows(), self.messages(), self.rules.flash_under)
        self.make.replace("metrics_hour", made, self.hours)

    def remake_consumers(self) -> None:
        self.make.replace("consumer_hour", make_consumers(self.attempt_rows()), self.hours)

    def remake_backlog(self) -> None:
        self.make.replace_backlog(self.attempt_rows(), self.messages(), self.hours)

    def remake_triage(self) -> None:
        """Recomputes whole days."""
        days = sorted({hour - hour % DAY for hour in self.hours})
        rows = filter_hours(self.make.table("attempt", list_days(days)), "at", days, DAY)
        metrics = self.make.table("metrics_hour", list_days(days))
        messages = keep_tried_messages(rows, self.all_messages)
        self.make.replace("triage", make_triage(rows, messages, metrics), days)


def list_days(hours: Iterable[int]) -> set[str]:
    return {to_day(hour) for hour in hours}


def keep_tried_messages(attempts: DataFrame, messages: DataFrame) -> DataFrame:
    """Keeps messages between the first and the last id with attempts. Spark skips other files."""
    (ids,) = attempts.agg(f.min("id"), f.max("id")).collect()
    return filter_between(messages, ids[0] or 0, ids[1] or 0)


def run_in_parallel(steps: dict[str, Callable[[], None]]) -> Iterable[str]:
    with ThreadPoolExecutor(MAX_PARALLEL_TABLES) as pool:
        names = {pool.submit(step): name for name, step in steps.items()}
        for done in as_completed(names):
            done.result()
            yield names[done]


def choose_usable(
    found: Results | None, manifests: list[Manifest], lake: Lake, rules: AnomalyThresholds
) -> Results:
    """Returns the results that are still valid. Changed thresholds keep only the attempts."""
    nothing = Results(
        schema=result_tables.VERSION,
        lake=lake.label.id,
        number=0,
        through=0,
        reached=0,
        rules="",
        files=(),
    )
    if found is None or found.lake != lake.label.id:
        return nothing
    ends = {each.last for each in manifests}
    if found.through not in ends:
        # A compaction merged analyzed batches with new ones.
        return nothing
    if found.rules == rules.digest:
        return found
    kept = tuple(found.list_files("attempt"))
    return Results(
        schema=found.schema,
        lake=found.lake,
        number=found.number,
        through=found.through,
        reached=0,
        rules="",
        files=kept,
    )


def count_rows(manifests: Sequence[Manifest]) -> int:
    return sum(part.rows for part in chain.from_iterable(each.parts for each in manifests))
