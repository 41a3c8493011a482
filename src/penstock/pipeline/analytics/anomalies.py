"""Finds anomalies by fixed thresholds, one row per hour, kind, queue and type."""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.model.anomalies import QUIET_KINDS, SEVERITIES, AnomalyThresholds
from penstock.model.queue import Queue
from penstock.pipeline.analytics.time import NAMES, floor_time, name_columns
from penstock.pipeline.periods import HOUR

KEYS = ["hour", "kind", "queue_id", "type", "consumer"]
COLUMNS = [
    "id", "hour", "kind", "severity", "queue_id", *NAMES, "type", "consumer",
    "count", "value", "threshold", "message_id", "first_at", "last_at",
]  # fmt: skip


def find_by_message(attempts: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Finds anomalies of single messages. Each row counts them and names the worst."""
    run, size, lease = f.col("run"), f.col("body_bytes"), f.col("lease")
    first = (f.col("deliveries") <= 1) & f.col("rested").isNull()
    waiting = f.col("state").isin("ready", "scheduled")
    failed = f.col("alike").isNotNull()
    poisoned = (f.col("alike") >= rules.poison_attempts) & (
        f.col("alike_consumers") >= rules.poison_consumers
    )
    over = run - lease
    died = (f.col("state") == "dead") & ~f.col("rested").eqNullSafe("dead")
    found = {
        "long_processing": (run > rules.slow_over, run, rules.slow_over),
        "large_payload": (first & (size > rules.payload_over), size, rules.payload_over),
        "lost_lease": (f.col("verb") == "reclaim", run, rules.lost_least),
        "near_dlq": (
            failed & waiting & (f.col("attempts_left") == 1),
            f.col("attempts"),
            rules.last_chance_least,
        ),
        "dlq_movement": (died, f.col("attempts"), rules.dead_least),
        "zombie_message": (over > lease * rules.overdue_leases, over, rules.overdue_leases),
        "poison_message": (poisoned, f.col("alike"), rules.poison_attempts),
    }
    wanted = {kind: each for kind, each in found.items() if kind not in rules.off}
    return (
        explode_kinds(attempts, wanted).filter(is_frequent_enough(rules))
        if wanted
        else make_empty(attempts)
    )


def is_frequent_enough(rules: AnomalyThresholds) -> Column:
    """True if the hour has the minimum count of its kind."""
    kind, count = f.col("kind"), f.col("count")
    few = [(kind == name) & (count < least) for name, least in get_min_counts(rules).items()]
    return ~reduce(Column.__or__, few)


def get_min_counts(rules: AnomalyThresholds) -> dict[str, int]:
    """Returns the minimum count per hour. For other kinds it is one."""
    return {
        "lost_lease": rules.lost_least,
        "near_dlq": rules.last_chance_least,
        "dlq_movement": rules.dead_least,
    }


def explode_kinds(attempts: DataFrame, found: dict[str, tuple[Column, Column, float]]) -> DataFrame:
    """Groups anomalies by kind. One attempt may have several, and most have none."""
    each = [
        f.struct(
            f.when(condition, f.lit(kind)).alias("kind"),
            value.cast("double").alias("value"),
            f.lit(float(threshold)).alias("threshold"),
        )
        for kind, (condition, value, threshold) in found.items()
    ]
    any_of = reduce(Column.__or__, (condition for condition, _, _ in found.values()))
    rows = attempts.filter(any_of).select(
        floor_time("at", HOUR).alias("hour"), "queue_id", "type", *NAMES, "id", "at", "position",
        f.inline(f.array(*each)),
    )  # fmt: skip
    worst = f.max(f.struct("value", -f.col("position"), "id"))
    grouped = rows.filter("kind is not null").groupBy("hour", "kind", "queue_id", "type").agg(
        *name_columns(), f.count("*").alias("count"), worst.alias("worst"),
        f.first("threshold").alias("threshold"), *make_first_and_last("at"),
    )  # fmt: skip
    return grouped.select(
        "*", f.col("worst.value").alias("value"), f.col("worst.id").alias("message_id")
    ).drop("worst")


def make_empty(attempts: DataFrame) -> DataFrame:
    return attempts.select("queue_id", "type", *NAMES).filter("false")


def make_first_and_last(moment: str) -> list[Column]:
    return [f.min(moment).alias("first_at"), f.max(moment).alias("last_at")]


def find_by_hour(metrics: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Finds anomalies in the hourly metrics."""
    flash = metrics.filter("flash > 0").select(
        *SHARED, f.lit("flash_message").alias("kind"), f.col("flash").alias("count"),
        f.col("run_p50").alias("value"), f.lit(rules.flash_under).alias("threshold"),
    )  # fmt: skip
    share = f.try_divide("retried", "attempts")
    storms = metrics.filter(
        (f.col("retried") >= rules.storm_retries) & (share >= rules.storm_share)
    ).select(
        *SHARED, f.lit("retry_storm").alias("kind"), f.col("retried").alias("count"),
        share.alias("value"), f.lit(rules.storm_share).alias("threshold"),
    )  # fmt: skip
    return flash.unionByName(storms)


SHARED = ["hour", "queue_id", "type", *NAMES]


def find_stuck_consumers(consumers: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Finds consumers that lose their leases and complete nothing."""
    found = consumers.filter((f.col("lost") >= rules.stuck_leases) & (f.col("completed") == 0))
    return found.select(
        "hour", "queue_id", *NAMES, "consumer", f.lit("stuck_consumer").alias("kind"),
        f.col("lost").alias("count"), f.col("lost").cast("double").alias("value"),
        f.lit(float(rules.stuck_leases)).alias("threshold"), "first_at", "last_at",
    )  # fmt: skip


def find_claim_bursts(attempts: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Finds bursts of claims by one consumer, in consecutive seconds of one hour."""
    claims = attempts.filter(f.col("consumer").isNotNull())
    return find_crowded_seconds(
        claims, "claimed_at", ["queue_id", "consumer"], rules.burst_claims, rules.burst_within
    ).withColumn("kind", f.lit("burst_dequeue"))


def find_bulk_publishes(messages: DataFrame, rules: AnomalyThresholds) -> DataFrame:
    """Finds batches: messages of one queue that were published at the same moment."""
    batches = messages.groupBy("queue_id", "created_at").agg(
        *name_columns(), f.count("*").alias("size")
    )
    large = batches.filter(f.col("size") >= rules.bulk_messages)
    return large.groupBy(floor_time("created_at", HOUR).alias("hour"), "queue_id").agg(
        *name_columns(), f.lit("bulk_enqueue").alias("kind"), f.sum("size").alias("count"),
        f.max("size").cast("double").alias("value"),
        f.lit(float(rules.bulk_messages)).alias("threshold"), *make_first_and_last("created_at"),
    )  # fmt: skip


def find_crowded_seconds(
    rows: DataFrame, moment: str, keys: list[str], most: int, within: int
) -> DataFrame:
    place = ["hour", *keys]
    seconds = rows.select(
        floor_time(moment, HOUR).alias("hour"), f.unix_seconds(moment).alias("second"),
        f.col(moment).alias("moment"), *keys, *NAMES,
    )  # fmt: skip
    # Skips hours that have too few in total, which are most.
    busy = seconds.groupBy(*place).count().filter(f.col("count") >= most)
    near = seconds.join(f.broadcast(busy), place, "left_semi")
    one = near.groupBy(*place, *NAMES, "second").agg(
        f.count("*").alias("one"), *make_first_and_last("moment")
    )
    line = Window.partitionBy(*place).orderBy("second").rangeBetween(1 - within, 0)
    summed = one.withColumn("several", f.sum("one").over(line))
    found = summed.filter(f.col("several") >= most).groupBy(*place)
    return found.agg(
        *name_columns(), f.max("several").alias("count"),
        f.max("several").cast("double").alias("value"),
        f.lit(float(most)).alias("threshold"), f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
    )  # fmt: skip


def collect_anomalies(
    parts: Iterable[DataFrame], rules: AnomalyThresholds, queues: Iterable[Queue]
) -> DataFrame:
    """Combines all kinds. Ids are deterministic, so that a repeated run changes nothing."""
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    for name, kind in ABSENT.items():
        if name not in rows.columns:
            rows = rows.withColumn(name, f.lit(None).cast(kind))
    named = [f.coalesce(f.col(name).cast("string"), f.lit("")) for name in KEYS[1:]]
    key = f.concat_ws("|", f.unix_seconds("hour").cast("string"), *named)
    severity = f.create_map(*(f.lit(each) for pair in SEVERITIES.items() for each in pair))
    rows = rows.filter(is_allowed(queues))
    rows = rows.filter(~f.col("kind").isin(*rules.off)) if rules.off else rows
    return rows.select(
        f.substring(f.sha2(key, 256), 1, 20).alias("id"), "hour", "kind",
        severity[f.col("kind")].alias("severity"),
        *(f.col(name).cast(ABSENT[name]).alias(name) for name in COLUMNS[4:]),
    )  # fmt: skip


def is_allowed(queues: Iterable[Queue]) -> Column:
    """True if the queue reports the kind. Quiet kinds must have been turned on."""
    settings = [(queue.id, queue.settings.anomalies) for queue in queues]
    name = f.concat_ws("/", "queue_id", "kind")
    on = [f"{id}/{kind}" for id, each in settings for kind in each.on]
    off = [f"{id}/{kind}" for id, each in settings for kind in each.off]
    quiet = f.col("kind").isin(*QUIET_KINDS)
    return ~name.isin(off) & (~quiet | name.isin(on))


ABSENT = {
    "queue_id": "long", "tenant": "string", "scope": "string", "queue": "string",
    "type": "string", "consumer": "string", "count": "long", "value": "double",
    "threshold": "double", "message_id": "long", "first_at": "timestamp", "last_at": "timestamp",
}  # fmt: skip
