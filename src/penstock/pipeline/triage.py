"""Transform: failures of a day that are alike, and what their messages have in common."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.attempts import failed, worked
from penstock.pipeline.fingerprints import template
from penstock.pipeline.frames import DAY, NAMES, floor, names

SERIES = ["day_at", "queue_id", "type"]
CLUSTER = [*SERIES, "fingerprint"]
PAIR = [*SERIES, "name", "value"]
# Messages of a type and day that stand for all of them: the same ones whenever it is run.
SAMPLE = 2_000
EVERYONE, MESSAGE = "", ""
LONGEST_VALUE = 64
# In how many of a cluster's messages an attribute is worth a word, and how much more than usual.
LEAST_SHARE, LEAST_LIFT, LEAST_MESSAGES = 0.3, 1.5, 3
MOST_ATTRIBUTES = 5
LONGEST_ERROR = 1_000


def triage(attempts: DataFrame, messages: DataFrame, metrics: DataFrame) -> DataFrame:
    """`metrics` are those of the same days."""
    common = attributes(drawn(by_day(attempts), totals(metrics)), messages)
    return named(clusters(attempts).join(common, CLUSTER, "left"))


def by_day(attempts: DataFrame) -> DataFrame:
    return attempts.filter(worked()).withColumn("day_at", floor("at", DAY))


def broken(attempts: DataFrame) -> DataFrame:
    return by_day(attempts).filter(failed() & f.col("fingerprint").isNotNull())


def clusters(attempts: DataFrame) -> DataFrame:
    """By what is left of an error without its particulars."""
    by_message = (
        broken(attempts)
        .groupBy(*CLUSTER, "id")
        .agg(
            *names(),
            f.count("*").alias("count"),
            f.max(f.col("state") == "dead").alias("dead"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.min(
                f.struct("position", f.substring("error", 1, LONGEST_ERROR).alias("error"))
            ).alias("one"),
        )
    )
    return by_message.groupBy(*CLUSTER).agg(
        *names(),
        f.sum("count").alias("count"),
        f.count("*").alias("messages"),
        f.count_if("dead").alias("dead"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        f.min(f.struct("one", "id")).alias("one"),
    )


def named(rows: DataFrame) -> DataFrame:
    key = f.concat_ws(
        "|", f.unix_seconds("day_at").cast("string"), "queue_id", "type", "fingerprint"
    )
    error = f.col("one.one.error")
    return rows.select(
        f.substring(f.sha2(key, 256), 1, 20).alias("id"), *CLUSTER, *NAMES, "count", "messages",
        "dead", "first_at", "last_at", f.col("one.id").alias("message_id"), error.alias("error"),
        template(error).alias("template"),
        f.coalesce("attributes", f.array().cast(ATTRIBUTES)).alias("attributes"),
    )  # fmt: skip


ATTRIBUTE = ("name", "value", "share", "usual")
ATTRIBUTES = "array<struct<name:string,value:string,share:double,usual:double>>"


def totals(metrics: DataFrame) -> DataFrame:
    """How many attempts a day had, and how many of them failed; of days with any that did."""
    days = metrics.withColumn("day_at", floor("hour", DAY)).groupBy(*SERIES)
    sums = days.agg(f.sum("attempts").alias("tried"), f.sum("failures").alias("missed"))
    return sums.filter("missed > 0")


def drawn(rows: DataFrame, totals: DataFrame) -> DataFrame:
    """Messages by a hash of their id: some that stand for all, and some of those that failed.

    `groups` are the clusters that a message stands for, and EVERYONE.
    """
    number = f.pmod(f.xxhash64("id"), f.lit(1_000_000)) / f.lit(1_000_000.0)
    usual = number < f.lit(float(SAMPLE)) / f.col("tried")
    broke = failed() & f.col("fingerprint").isNotNull()
    hit = broke & (number < f.lit(float(SAMPLE)) / f.col("missed"))
    known = rows.join(f.broadcast(totals), SERIES).filter(usual | hit)
    groups = f.collect_set(f.when(hit, f.col("fingerprint")))
    everyone = f.max(usual)
    together = f.concat(groups, f.when(everyone, f.array(f.lit(EVERYONE))).otherwise(f.array()))
    return known.groupBy(*SERIES, "id").agg(together.alias("groups"))


def attributes(drawn: DataFrame, messages: DataFrame) -> DataFrame:
    """Those that a cluster's messages have more often than all messages of their type."""
    bodies = messages.select("id", "body", "headers", "labels")
    told = bodies.join(drawn.hint("shuffle_hash"), "id").select(
        *SERIES, f.explode("groups").alias("group"), said().alias("said")
    )
    pairs = told.select(*SERIES, "group", f.inline("said")).groupBy(*PAIR, "group")
    counted = pairs.agg(f.count("*").alias("times"))
    # Every message says MESSAGE, so that is how many there are.
    size = f.max(f.when(f.col("name") == MESSAGE, f.col("times")))
    sized = counted.withColumn("size", size.over(Window.partitionBy(*SERIES, "group")))
    shares = sized.filter(f.col("name") != MESSAGE).withColumn("share", f.expr("times / size"))
    return notable(shares)


def notable(shares: DataFrame) -> DataFrame:
    """The most unusual first."""
    usual = f.max(f.when(f.col("group") == EVERYONE, f.col("share")))
    often = (f.col("share") >= LEAST_SHARE) & (f.col("size") >= LEAST_MESSAGES)
    special = f.when((f.col("group") != EVERYONE) & often, f.struct("group", "share"))
    one = shares.groupBy(*PAIR).agg(
        # Not seen among those that stand for all: rarer than one of them.
        f.coalesce(usual, f.lit(1.0 / SAMPLE)).alias("usual"),
        f.collect_list(special).alias("specials"),
    )
    rows = one.select(*PAIR, "usual", f.inline("specials")).filter(
        f.col("share") >= f.col("usual") * LEAST_LIFT
    )
    order = (-f.col("share") / f.col("usual")).alias("order")
    ranked = f.array_sort(f.collect_list(f.struct(order, *ATTRIBUTE)))
    plain = f.transform(
        f.slice(ranked, 1, MOST_ATTRIBUTES),
        lambda each: f.struct(*(each[name].alias(name) for name in ATTRIBUTE)),
    )
    grouped = rows.withColumnRenamed("group", "fingerprint").groupBy(*CLUSTER)
    return grouped.agg(plain.alias("attributes"))


def said() -> Column:
    """The attributes of a body that is a JSON object, of its headers and of its labels."""
    body = f.from_json(f.col("body").cast("string"), "map<string,string>")
    message = f.array(f.struct(f.lit(MESSAGE).alias("name"), f.lit("").alias("value")))
    headers, labels = entries(f.col("headers"), "header "), entries(f.col("labels"), "label ")
    return f.concat(message, entries(body, ""), headers, labels)


def entries(texts: Column, prefix: str) -> Column:
    short = f.map_filter(
        texts, lambda name, value: (name != MESSAGE) & (f.length(value) <= LONGEST_VALUE)
    )
    pairs = f.transform(
        f.map_entries(short),
        lambda pair: f.struct(
            f.concat(f.lit(prefix), pair.key).alias("name"), pair.value.alias("value")
        ),
    )
    return f.coalesce(pairs, f.array().cast("array<struct<name:string,value:string>>"))
