"""Replays messages from the lake into a queue: each once, in order, linked to the original."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType

from penstock.errors import InvalidInput, NotFound
from penstock.model.message import FINAL, Moment, State
from penstock.model.queue import Queue, QueueState
from penstock.pipeline.filtering import filter_messages
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.files import LakeFiles
from penstock.pipeline.lake.reader import read_lake
from penstock.pipeline.spark.errors import find_cause
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.spark.sink_publish import SinkResult, refuse_closed
from penstock.pipeline.store_access import make_absolute_url, make_identity, use_store
from penstock.store import Store

# Lists the replays that a message went through, oldest first.
HEADER = "penstock-replay"
TENANT = "default"
ENDED = sorted({*FINAL, State.DEAD})
# Taken from the last history row of a message.
LAST_COLUMNS = ("state", "reason", "error", "attempts", "deliveries", "consumer")
COPIED = (
    "type", "priority", "content_type", "labels", "lease", "timeout", "max_attempts",
    "max_deliveries", "ordering_key", "correlation_id", "causation_id", "traceparent", "hops",
)  # fmt: skip


class ReplayRequest(Struct, frozen=True):
    """Selects messages to replay. Equal requests are the same replay."""

    where: str = "true"
    patch: str | None = None
    to: str | None = None
    scope: str = "default"
    # A different name makes it a different replay.
    name: str = ""
    # A filter, as searches of a store take it.
    filter: str | None = None

    @property
    def title(self) -> str:
        words = [self.where, self.patch, self.to, self.scope, self.name]
        said = json.dumps(words if self.filter is None else [*words, self.filter])
        return f"replay-{sha256(said.encode()).hexdigest()[:16]}"


class ReplayResult(Struct, frozen=True):
    """Message counts by queue, and how many were published now or by an earlier run."""

    name: str
    queues: dict[str, int]
    published: int = 0
    repeated: int = 0

    @property
    def matched(self) -> int:
        return sum(self.queues.values())


def replay(
    spark: SparkSession,
    url: str,
    lake: str,
    request: ReplayRequest,
    *,
    rate: float | None = None,
    dry_run: bool = False,
) -> ReplayResult:
    """Replays every matching finished message that this request has not replayed before.

    Checks all messages before it publishes the first. After a crash, the next call publishes the
    rest.
    """
    url = make_absolute_url(url)
    place = lakes.find(lake)
    lakes.refuse_foreign(place, use_store(url, make_identity))
    if request.to is not None:
        use_store(url, partial(refuse_closed, queues=[request.to], scope=request.scope))
    queues, now = use_store(url, list_live_queues), use_store(url, read_now)
    rows = plan_replay(spark, lake, request, queues, now)
    rows = order_rows(rows, rate).persist(StorageLevel.DISK_ONLY)
    try:
        target = SinkOptions(url, request.title, scope=request.scope, rate=rate, conflict="ignore")
        counts = count_by_queue(rows, request)
        if not counts:
            return ReplayResult(request.title, counts)
        use_store(url, partial(refuse_closed, queues=counts, scope=request.scope))
        check_rows(rows, target)
        done = SinkResult() if dry_run else send_rows(rows, target, place.files)
        return ReplayResult(request.title, counts, done.published, done.repeated)
    finally:
        rows.unpersist()


async def list_live_queues(store: Store) -> list[Queue]:
    return [queue for queue in await store.queues() if queue.state is not QueueState.DELETED]


async def read_now(store: Store) -> Moment:
    return await store.now()


def plan_replay(
    spark: SparkSession, lake: str, request: ReplayRequest, queues: Sequence[Queue], now: Moment
) -> DataFrame:
    """Selects the columns that the sink expects."""
    known = add_last_state(read_lake(spark, lake, "message"), read_lake(spark, lake, "history"))
    with explain_errors("--where", request.where):
        matching = known.filter(request.where)
        matching.schema  # noqa: B018 - makes a remote Spark analyze it now
    # Messages of other tenants are never replayed.
    ours = (f.col("tenant") == TENANT) & (f.col("scope") == request.scope)
    chosen = matching.filter(ours & f.col("state").isin(*ENDED) & ~is_descendant(request.title))
    if request.filter is not None:
        chosen = filter_messages(chosen, request.filter, now)
    called = spark.createDataFrame(
        [(queue.id, queue.name) for queue in queues], "queue_id long, called string"
    )
    bodied = apply_patch(chosen, request.patch).join(f.broadcast(called), "queue_id", "left")
    queue = f.col("called") if request.to is None else f.lit(request.to)
    return bodied.select(
        f.col("id").cast("string").alias("key"),
        queue.alias("queue"),
        f.col("id").alias("parent_id"),
        f.col("body"),
        mark_replayed(request.title).alias("headers"),
        *COPIED,
    )


def add_last_state(messages: DataFrame, history: DataFrame) -> DataFrame:
    """Adds the last history row of each message, and its body as text."""
    ended = f.struct(*LAST_COLUMNS, f.col("at").alias("ended_at"))
    last = history.groupBy("id").agg(f.max_by(ended, "position").alias("last"))
    text = f.col("body").cast("string").alias("text")
    return messages.join(last, "id", "left").select(messages["*"], text, "last.*")


def get_lineage() -> Column:
    return f.coalesce(f.try_element_at(f.col("headers"), f.lit(HEADER)), f.lit(""))


def is_descendant(title: str) -> Column:
    """True for messages that this replay published, and for their replays."""
    return f.array_contains(f.split(get_lineage(), ","), title)


def mark_replayed(title: str) -> Column:
    others = f.map_filter(f.col("headers"), lambda key, _: key != HEADER)
    before = f.when(get_lineage() == "", f.lit(title)).otherwise(
        f.concat(get_lineage(), f.lit(f",{title}"))
    )
    return f.map_concat(f.coalesce(others, f.create_map().cast("map<string,string>")),
                        f.create_map(f.lit(HEADER), before))  # fmt: skip


def apply_patch(rows: DataFrame, patch: str | None) -> DataFrame:
    if patch is None:
        return rows
    with explain_errors("--patch", patch):
        changed = rows.withColumn("body", f.expr(patch))
        kind = changed.schema["body"].dataType
    if not isinstance(kind, StringType | BinaryType):
        raise InvalidInput(
            f"--patch {patch!r} has type {kind.simpleString()}; a body must be string or binary"
        )
    return changed.withColumn("body", f.col("body").cast("binary"))


def order_rows(rows: DataFrame, rate: float | None) -> DataFrame:
    """Gives each ordering key to one task. With a rate, one task publishes everything."""
    line = f.coalesce(f.col("ordering_key"), f.col("key"))
    divided = rows.repartition(line) if rate is None else rows.repartition(1)
    return divided.sortWithinPartitions("parent_id")


def count_by_queue(rows: DataFrame, request: ReplayRequest) -> dict[str, int]:
    """Counts messages by queue. This evaluates all expressions for every message."""
    sums = rows.groupBy("queue").agg(
        f.count("*"), f.count_distinct("key"), f.count_if(f.col("body").isNull())
    )
    try:
        found = sums.collect()
    except PySparkException as error:
        said = " ".join(filter(None, ("--where", repr(request.where), request.patch and "--patch",
                                      request.patch and repr(request.patch))))  # fmt: skip
        raise InvalidInput(f"{said} failed for a message: {find_cause(error)}") from None
    for queue, count, messages, empty in found:
        if queue is None:
            raise NotFound(
                f"the queue of {count} messages was deleted; choose another one with --to"
            )
        if empty:
            raise InvalidInput(f"--patch {request.patch!r} returns no body for {empty} messages")
        if count != messages:
            raise InvalidInput(f"--patch {request.patch!r} returns several bodies for a message")
    return {row[0]: row[1] for row in sorted(found)}


@contextmanager
def explain_errors(option: str, text: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise InvalidInput(f"{option} {text!r}: {find_cause(error)}") from None


def check_rows(rows: DataFrame, target: SinkOptions) -> None:
    """Validates the rows without publishing any."""
    write(rows, msgspec.structs.replace(target, publish=False))


def send_rows(rows: DataFrame, target: SinkOptions, files: LakeFiles) -> SinkResult:
    """Publishes the rows. The counts come back in a lake file, because the Spark driver may be
    another machine."""
    report = f"_replay-{uuid.uuid4().hex}.json"
    try:
        write(rows, msgspec.structs.replace(target, report=f"{files.where}/{report}"))
        return msgspec.json.decode(files.read(report) or b"", type=SinkResult)
    finally:
        files.remove([report])


def write(rows: DataFrame, target: SinkOptions) -> None:
    options = {name: value for name, value in asdict(target).items() if value is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value)
             for name, value in options.items()}  # fmt: skip
    rows.write.format("penstock").options(**texts).mode("append").save()
