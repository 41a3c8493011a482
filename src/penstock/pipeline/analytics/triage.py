"""Failure triage: clusters a day's failures by error, and finds what their messages share."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.analytics.attempts import is_failed, is_worked
from penstock.pipeline.analytics.fingerprints import make_template
from penstock.pipeline.analytics.time import NAMES, floor_time, name_columns
from penstock.pipeline.periods import DAY

SERIES = ["day_at", "queue_id", "type"]
CLUSTER = [*SERIES, "fingerprint"]
PAIR = [*SERIES, "name", "value"]
# Size of the deterministic sample of messages per type and day.
SAMPLE_SIZE = 500
EVERYONE = ""
MAX_VALUE_LENGTH = 64
# Minimum share of an attribute in a cluster, ratio to its usual share, and cluster size.
MIN_SHARE, MIN_LIFT, MIN_MESSAGES = 0.3, 1.5, 10
# Probability of a false positive per day, over all attributes.
MAX_CHANCE = 0.01
MAX_ATTRIBUTES = 5
MAX_ERROR_LENGTH = 1_000


def make_triage(attempts: DataFrame, messages: DataFrame, metrics: DataFrame) -> DataFrame:
    """`metrics` must cover the same days."""
    common = find_attributes(draw_sample(add_day(attempts), make_totals(metrics)), messages)
    return add_ids(make_clusters(attempts).join(common, CLUSTER, "left"))


def add_day(attempts: DataFrame) -> DataFrame:
    return attempts.filter(is_worked()).withColumn("day_at", floor_time("at", DAY))


def filter_failed(attempts: DataFrame) -> DataFrame:
    return add_day(attempts).filter(is_failed() & f.col("fingerprint").isNotNull())


def make_clusters(attempts: DataFrame) -> DataFrame:
    """Clusters failures by error fingerprint."""
    by_message = (
        filter_failed(attempts)
        .groupBy(*CLUSTER, "id")
        .agg(
            *name_columns(),
            f.count("*").alias("count"),
            f.max(f.col("state") == "dead").alias("dead"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.min(
                f.struct("position", f.substring("error", 1, MAX_ERROR_LENGTH).alias("error"))
            ).alias("one"),
        )
    )
    return by_message.groupBy(*CLUSTER).agg(
        *name_columns(),
        f.sum("count").alias("count"),
        f.count("*").alias("messages"),
        f.count_if("dead").alias("dead"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        f.min(f.struct("one", "id")).alias("one"),
    )


def add_ids(rows: DataFrame) -> DataFrame:
    key = f.concat_ws(
        "|", f.unix_seconds("day_at").cast("string"), "queue_id", "type", "fingerprint"
    )
    error = f.col("one.one.error")
    return rows.select(
        f.substring(f.sha2(key, 256), 1, 20).alias("id"),
        *CLUSTER,
        *NAMES,
        "count",
        "messages",
        "dead",
        "first_at",
        "last_at",
        f.col("one.id").alias("message_id"),
        error.alias("error"),
        make_template(error).alias("template"),
        f.coalesce("attributes", f.array().cast(ATTRIBUTES)).alias("attributes"),
    )


ATTRIBUTE = ("name", "value", "share", "usual")
ATTRIBUTES = "array<struct<name:string,value:string,share:double,usual:double>>"
ENTRIES = "array<struct<key:string,value:string>>"


def make_totals(metrics: DataFrame) -> DataFrame:
    """Counts attempts and failures per day, for days with failures."""
    days = metrics.withColumn("day_at", floor_time("hour", DAY)).groupBy(*SERIES)
    sums = days.agg(f.sum("attempts").alias("tried"), f.sum("failures").alias("missed"))
    return sums.filter("missed > 0")


def draw_sample(rows: DataFrame, totals: DataFrame) -> DataFrame:
    """Samples all messages and failed messages, by a hash of the id.

    `groups` lists the clusters that a message represents, and EVERYONE for all messages.
    """
    number = f.pmod(f.xxhash64("id"), f.lit(1_000_000)) / f.lit(1_000_000.0)
    usual = number < f.lit(float(SAMPLE_SIZE)) / f.col("tried")
    broke = is_failed() & f.col("fingerprint").isNotNull()
    hit = broke & (number < f.lit(float(SAMPLE_SIZE)) / f.col("missed"))
    # Drops attempts without a message. The filter on id lets Spark reuse the exchange.
    with_message = rows.filter("created_at is not null and id is not null")
    known = with_message.join(f.broadcast(totals), SERIES).filter(usual | hit)
    groups = f.collect_set(f.when(hit, f.col("fingerprint")))
    everyone = f.max(usual)
    together = f.concat(groups, f.when(everyone, f.array(f.lit(EVERYONE))).otherwise(f.array()))
    return known.groupBy(*SERIES, "id").agg(together.alias("groups"))


def find_attributes(drawn: DataFrame, messages: DataFrame) -> DataFrame:
    """Finds attributes that are more frequent in a cluster than in all messages of the type."""
    bodies = messages.select("id", "body", "headers", "labels")
    described = bodies.join(drawn.hint("shuffle_hash"), "id").select(
        *SERIES, "groups", extract_attributes().alias("said")
    )
    # The sample is small, so it is shuffled once. Without inline_outer Spark would parse every
    # body twice to drop the empty ones first.
    entry = f.inline_outer("said").alias("name", "value")
    pairs = (
        described.repartition(*SERIES).select(*SERIES, "groups", entry).filter("name is not null")
    )
    each = pairs.select(*PAIR, f.explode("groups").alias("group"))
    counted = each.groupBy(*PAIR, "group").agg(f.count("*").alias("times"))
    sized = counted.join(f.broadcast(count_sizes(drawn)), [*SERIES, "group"])
    return filter_notable(sized.withColumn("share", f.expr("times / size")))


def count_sizes(drawn: DataFrame) -> DataFrame:
    """Counts the sample of each group, and the sample of all messages beside it."""
    each = drawn.select(*SERIES, f.explode("groups").alias("group"))
    sized = each.groupBy(*SERIES, "group").agg(f.count("*").alias("size"))
    everyone = f.when(f.col("group") == EVERYONE, f.col("size"))
    all_groups = Window.partitionBy(*SERIES)
    return sized.withColumn("everyone_size", f.coalesce(f.max(everyone).over(all_groups), f.lit(0)))


def filter_notable(shares: DataFrame) -> DataFrame:
    """Keeps attributes that are frequent, unusual and significant."""
    everyone = f.col("group") == EVERYONE
    large = shares.filter(~everyone & (f.col("size") >= MIN_MESSAGES))
    special = large.filter(f.col("share") >= MIN_SHARE)
    # Few values qualify, so the join with the overall shares is small.
    usual = shares.filter(everyone).join(
        f.broadcast(special.select(*PAIR).distinct()), PAIR, "left_semi"
    )
    one = (
        special.unionByName(usual)
        .groupBy(*PAIR)
        .agg(
            f.coalesce(f.max(f.when(everyone, f.col("times"))), f.lit(0)).alias("everyone_times"),
            # Not in the overall sample, so rarer than one in SAMPLE_SIZE.
            f.coalesce(f.max(f.when(everyone, f.col("share"))), f.lit(1.0 / SAMPLE_SIZE)).alias(
                "usual"
            ),
            f.collect_list(
                f.when(~everyone, f.struct("group", "times", "size", "everyone_size", "share"))
            ).alias("specials"),
        )
    )
    pairs = large.groupBy("day_at").agg(f.count("*").alias("pairs"))
    rows = one.select(*PAIR, "everyone_times", "usual", f.inline("specials"))
    found = rows.join(f.broadcast(pairs), "day_at").filter(
        (f.col("share") >= f.col("usual") * MIN_LIFT) & is_significant()
    )
    return rank_attributes(found)


def is_significant() -> Column:
    """True if chance alone is unlikely to make a value this frequent in a cluster.

    The probability of `times` among `size` messages drawn from the cluster and all others is at
    most exp(-size * divergence), by the Chernoff-Hoeffding bound on the binomial and the
    hypergeometric tail. With the Bonferroni correction it is compared with MAX_CHANCE over the
    pairs of the day.
    """
    times, size, share = f.col("times"), f.col("size"), f.col("share")
    pooled = (times + f.col("everyone_times")) / (size + f.col("everyone_size"))
    missing = f.when(share < 1, (1 - share) * f.log((1 - share) / (1 - pooled))).otherwise(0.0)
    divergence = share * f.log(share / pooled) + missing
    return size * divergence > f.log(f.col("pairs") / MAX_CHANCE)


def rank_attributes(rows: DataFrame) -> DataFrame:
    order = (-f.col("share") / f.col("usual")).alias("order")
    ranked = f.array_sort(f.collect_list(f.struct(order, *ATTRIBUTE)))
    plain = f.transform(
        f.slice(ranked, 1, MAX_ATTRIBUTES),
        lambda each: f.struct(*(each[name].alias(name) for name in ATTRIBUTE)),
    )
    grouped = rows.withColumnRenamed("group", "fingerprint").groupBy(*CLUSTER)
    return grouped.agg(plain.alias("attributes"))


def extract_attributes() -> Column:
    """Extracts attributes from a JSON object body, the headers and the labels."""
    body = f.from_json(f.col("body").cast("string"), "map<string,string>")
    return f.concat(
        map_entries(body),
        prefix_names("header ", map_entries(f.col("headers"))),
        prefix_names("label ", map_entries(f.col("labels"))),
    )


def map_entries(texts: Column) -> Column:
    short = f.filter(
        f.map_entries(texts),
        lambda pair: (pair.key != "") & (f.length(pair.value) <= MAX_VALUE_LENGTH),
    )
    return f.coalesce(short, f.array().cast(ENTRIES))


def prefix_names(prefix: str, pairs: Column) -> Column:
    return f.transform(
        pairs,
        lambda pair: f.struct(
            f.concat(f.lit(prefix), pair.key).alias("key"), pair.value.alias("value")
        ),
    )
