"""Makes the tables of a lake that tell how the queues did: of the hours that are new, or changed.

An hour is made anew from all its rows, so many small runs come to the same as a large one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline import lake as lakes
from penstock.pipeline import results
from penstock.pipeline.attempts import attempts, limits_of
from penstock.pipeline.consumers import consumers
from penstock.pipeline.delta_log import sync_delta, sync_results
from penstock.pipeline.frames import DAY, text_day, within
from penstock.pipeline.judging import Judge
from penstock.pipeline.lake import Lake
from penstock.pipeline.manifest import Manifest
from penstock.pipeline.metrics import metrics
from penstock.pipeline.remaking import Remaker
from penstock.pipeline.results import File, Results
from penstock.pipeline.rules import Rules
from penstock.pipeline.session import tuned
from penstock.pipeline.span import Span, between, span_of
from penstock.pipeline.stores import everywhere, identity, using
from penstock.pipeline.triage import triage
from penstock.queue import Queue
from penstock.store import Store

STEPS = ("attempts", "metrics", "consumers", "backlog", "triage", "anomalies")
# How many tables are made at once: planning one leaves the processors idle.
AT_ONCE = 2


class Analysed(Struct, frozen=True):
    """The results as they are now, and the hours that were made anew."""

    results: Results
    hours: tuple[int, ...] = ()
    attempts: int = 0


def analyse(
    spark: SparkSession,
    url: str,
    lake: str,
    rules: Rules | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Analysed:
    """Killed at any moment, it leaves the results as they were, and the next run goes on."""
    url = everywhere(url)
    with lakes.held(lake, using(url, identity)) as place:
        # First: what is swept must not be in a Delta log any more.
        sync_delta(place)
        results.sweep(place)
        job = Job(spark, place, rules or Rules(), using(url, queues_of))
        done = job.run(progress)
        sync_results(place)
        return done


async def queues_of(store: Store) -> list[Queue]:
    return list(await store.queues())


class Job:
    """One run over one lake."""

    def __init__(
        self, spark: SparkSession, lake: Lake, rules: Rules, queues: Iterable[Queue]
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.rules = rules
        self.queues = queues
        self.chain = lake.manifests()
        # Before it is looked which the newest are: another run may publish some meanwhile.
        self.number = results.next_number(lake)
        self.old = usable(results.newest(lake), self.chain, lake, rules)
        self.fresh = [each for each in self.chain if each.first > self.old.through]

    def run(self, progress: Callable[[str], None]) -> Analysed:
        same_rules = self.old.rules == self.rules.digest
        if not self.fresh and (same_rules or not self.chain):
            return Analysed(self.old)
        concerned = self.fresh if same_rules else self.chain
        with tuned(self.spark, rows_in(concerned)):
            make = Remaker(self.spark, self.lake, self.old, self.number)
            return self.made(make, self.span(make, concerned), progress)

    def span(self, make: Remaker, concerned: Sequence[Manifest]) -> Span:
        return span_of(make.source("history", concerned), make.source("message", concerned))

    def made(self, make: Remaker, span: Span, progress: Callable[[str], None]) -> Analysed:
        new = self.make_attempts(make, span)
        progress("attempts")
        make.add(new)
        tables = Tables(make, make.source("message", self.chain), span, self.rules)
        tables.remake_metrics()
        progress("metrics")
        for step in in_parallel(tables.steps()):
            progress(step)
        judge = Judge(make, self.rules, span, self.old.reached)
        judge.remake(tables.claims(), tables.rows(), tables.messages())
        progress("anomalies")
        done = self.publish(make, span)
        return Analysed(done, span.hours, sum(file.rows for file in new))

    def make_attempts(self, make: Remaker, span: Span) -> list[File]:
        if not self.fresh:
            return []
        history = make.source("history", self.fresh)
        ids = span.first_id, span.last_id
        messages = between(make.source("message", self.chain), *ids)
        rests = between(make.source("history", self.chain).filter("not final"), *ids)
        limits = limits_of(self.spark, self.queues)
        return make.write(attempts(history, messages, rests, limits), "attempt")

    def publish(self, make: Remaker, span: Span) -> Results:
        return results.publish(
            self.lake,
            Results(
                results.VERSION,
                self.lake.label.id,
                make.number,
                self.chain[-1].last,
                max(self.old.reached, span.reached),
                self.rules.digest,
                tuple(make.files),
            ),
        )


class Tables:
    """What is made of attempts and messages alone."""

    def __init__(self, make: Remaker, messages: DataFrame, span: Span, rules: Rules) -> None:
        self.make = make
        self.all_messages = messages
        self.hours = span.hours
        self.rules = rules

    def rows(self) -> DataFrame:
        return within(self.make.table("attempt"), "at", self.hours)

    def claims(self) -> DataFrame:
        return within(self.make.table("attempt"), "claimed_at", self.hours)

    def messages(self) -> DataFrame:
        return within(self.all_messages, "created_at", self.hours)

    def steps(self) -> dict[str, Callable[[], None]]:
        """Those that need the metrics, or nothing of each other."""
        return {
            "triage": self.remake_triage,
            "consumers": self.remake_consumers,
            "backlog": self.remake_backlog,
        }

    def remake_metrics(self) -> None:
        made = metrics(self.rows(), self.messages(), self.rules.flash_under)
        self.make.replace("metrics_hour", made, self.hours)

    def remake_consumers(self) -> None:
        self.make.replace("consumer_hour", consumers(self.rows()), self.hours)

    def remake_backlog(self) -> None:
        self.make.replace_backlog(self.rows(), self.messages(), self.hours)

    def remake_triage(self) -> None:
        """By day, so of all the day's attempts."""
        days = sorted({hour - hour % DAY for hour in self.hours})
        rows = within(self.make.table("attempt"), "at", days, DAY)
        told = self.make.table("metrics_hour", {text_day(day) for day in days})
        messages = those_of(rows, self.all_messages)
        self.make.replace("triage", triage(rows, messages, told), days)


def those_of(attempts: DataFrame, messages: DataFrame) -> DataFrame:
    """The messages from the first to the last that were tried: the files of others are not read."""
    (ids,) = attempts.agg(f.min("id"), f.max("id")).collect()
    return between(messages, ids[0] or 0, ids[1] or 0)


def in_parallel(steps: dict[str, Callable[[], None]]) -> Iterable[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = {pool.submit(step): name for name, step in steps.items()}
        for done in as_completed(names):
            done.result()
            yield names[done]


def usable(found: Results | None, manifests: list[Manifest], lake: Lake, rules: Rules) -> Results:
    """What of earlier results can stay. Other rules leave the attempts alone."""
    nothing = Results(results.VERSION, lake.label.id, 0, 0, 0, "", ())
    if found is None or found.lake != lake.label.id:
        return nothing
    ends = {each.last for each in manifests}
    if found.through not in ends:
        # Batches that were compacted together, of which some are new.
        return nothing
    if found.rules == rules.digest:
        return found
    kept = tuple(found.of("attempt"))
    return Results(found.schema, found.lake, found.number, found.through, 0, "", kept)


def rows_in(manifests: Sequence[Manifest]) -> int:
    return sum(part.rows for part in chain.from_iterable(each.parts for each in manifests))
