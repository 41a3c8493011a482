"""Makes the tables of a lake that tell how the queues did: of the hours that are new, or changed.

An hour is made anew from all its rows, so many small runs come to the same as a large one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import chain

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.message import Moment
from penstock.pipeline import lake as lakes
from penstock.pipeline import results
from penstock.pipeline.attempts import attempts, limits_of
from penstock.pipeline.consumers import consumers
from penstock.pipeline.delta_log import sync_delta, sync_results
from penstock.pipeline.frames import within
from penstock.pipeline.judging import Judge
from penstock.pipeline.lake import Lake
from penstock.pipeline.manifest import Manifest
from penstock.pipeline.metrics import metrics
from penstock.pipeline.periods import DAY, text_day
from penstock.pipeline.remaking import Remaker
from penstock.pipeline.results import Results
from penstock.pipeline.rules import Rules
from penstock.pipeline.session import tuned
from penstock.pipeline.span import Span, between, span_of
from penstock.pipeline.stores import everywhere, identity, using
from penstock.pipeline.triage import triage
from penstock.queue import Queue
from penstock.store import Store
from penstock.stores import urls

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
        job = Job(spark, place, rules or Rules(), using(url, partial(look_at, url)))
        done = job.run(progress)
        sync_results(place)
        return done


class Source(Struct, frozen=True):
    """The store at the begin of a run."""

    name: str
    read_at: Moment
    queues: list[Queue]


async def look_at(url: str, store: Store) -> Source:
    return Source(urls.told(url), await store.now(), list(await store.queues()))


class Job:
    """One run over one lake."""

    def __init__(self, spark: SparkSession, lake: Lake, rules: Rules, source: Source) -> None:
        self.spark = spark
        self.lake = lake
        self.rules = rules
        self.source = source
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
        tables = Tables(make, make.source("message", self.chain), span, self.rules)
        tables.remake_metrics()
        progress("metrics")
        for step in in_parallel(tables.steps()):
            progress(step)
        judge = Judge(make, self.rules, span, self.old.reached)
        judge.remake(tables.claims(), tables.rows(), tables.messages())
        progress("anomalies")
        done = self.publish(make, span)
        return Analysed(done, span.hours, new)

    def make_attempts(self, make: Remaker, span: Span) -> int:
        """Returns how many there are more."""
        if not self.fresh:
            return 0
        history = make.source("history", self.fresh)
        ids = span.first_id, span.last_id
        messages = between(make.source("message", self.chain), *ids)
        rests = between(make.source("history", self.chain).filter("not final"), *ids)
        limits = limits_of(self.spark, self.source.queues)
        today = text_day(self.reached(span) // 1_000_000)
        merged = results.days_to_merge(self.old.of("attempt"), today)
        return make.append("attempt", attempts(history, messages, rests, limits), merged)

    def reached(self, span: Span) -> Moment:
        return max(self.old.reached, span.reached)

    def publish(self, make: Remaker, span: Span) -> Results:
        return results.publish(
            self.lake,
            Results(
                schema=results.VERSION,
                lake=self.lake.label.id,
                number=make.number,
                through=self.chain[-1].last,
                reached=self.reached(span),
                rules=self.rules.digest,
                files=tuple(make.files),
                store=self.source.name,
                made_at=self.source.read_at,
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
        return within(self.make.table("attempt", days_of(self.hours)), "at", self.hours)

    def claims(self) -> DataFrame:
        """They end on any day: the clocks of two rows may differ."""
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
        rows = within(self.make.table("attempt", days_of(days)), "at", days, DAY)
        told = self.make.table("metrics_hour", days_of(days))
        messages = those_of(rows, self.all_messages)
        self.make.replace("triage", triage(rows, messages, told), days)


def days_of(hours: Iterable[int]) -> set[str]:
    return {text_day(hour) for hour in hours}


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
