"""Generates a synthetic lake of one week with Spark, to benchmark pipeline runs."""

import asyncio
from pathlib import Path

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.store_types import Cursor
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.manifest import LakePart, Manifest
from penstock.pipeline.lake.schema import SCHEMAS, TABLES, VERSION, Table, to_spark_schema
from penstock.pipeline.store_access import make_identity, use_store

QUEUES, TYPES, CONSUMERS = 20, 6, 40
WEEK = 7 * 86_400
BEGIN = 1_790_000_000 - 1_790_000_000 % 86_400
# Number of attempts, and how many of 1000 messages have it.
RETRIED = (850, 110, 30, 7, 3)
ROWS_OF_A_MESSAGE = 1.203
FILLER = "x" * 120
ERRORS = (
    "concat('TimeoutError: no answer from host-', id % 37, ' after ', 1000 + id % 977, ' ms')",
    "concat('ValueError: invalid literal for int() with base 10: ''', id, '''')",
    "concat('ConnectionResetError: [Errno 104] peer 10.0.', id % 255, '.', id % 13)",
    "concat('KeyError: ''customer_', id % 5000, ''' in /srv/app/orders.py line ', id % 300)",
)


def draw(seed: int, most: int) -> str:
    """Returns a deterministic number below `most` for each id."""
    return f"pmod(xxhash64(id, {seed}), {most})"


def make_messages(spark: SparkSession, count: int) -> DataFrame:
    step = WEEK * 1_000_000 / count
    queue = f"cast({draw(1, QUEUES)} + 100 as long)"
    body = (
        f'concat(\'{{"customer":\', {draw(2, 5000)}, \',"region":"r\', {draw(3, 8)},'
        f' \'","amount":\', {draw(4, 100000)}, \',"note":"{FILLER}"}}\')'
    )
    rows = spark.range(1, count + 1).selectExpr(
        "id", f"{queue} as queue_id", "'default' as tenant", "'default' as scope",
        f"concat('queue', {queue}) as queue", f"concat('type', {draw(5, TYPES)}) as type",
        "0L as priority",
        f"timestamp_micros({BEGIN}000000 + cast(id * {step} as long)) as created_at",
        f"cast({body} as binary) as body", "'application/json' as content_type",
    )  # fmt: skip
    return shape_rows(rows, "message")


def make_history(messages: DataFrame) -> DataFrame:
    """Retries follow a minute after a failure. The last attempt mostly succeeds."""
    bounds = [sum(RETRIED[: n + 1]) for n in range(len(RETRIED))]
    tries = "case " + " ".join(
        f"when {draw(6, 1000)} < {bound} then {n + 1}" for n, bound in enumerate(bounds)
    ) + f" else {len(RETRIED)} end"  # fmt: skip
    rows = messages.selectExpr(
        "id", "queue_id", "tenant", "scope", "queue", "created_at", f"{tries} as tries",
        f"{draw(7, 1_000_000)} / 1e6 as slow",
    )  # fmt: skip
    rows = rows.select("*", f.explode(f.expr("sequence(1, tries)")).alias("n"))
    ready = "unix_micros(created_at) + (n - 1) * 60000000"
    run = "cast(20000 * exp(6 * pow(slow, 4)) as long)"
    error = " ".join(f"when {draw(8, 4)} = {n} then {text}" for n, text in enumerate(ERRORS))
    timed = rows.selectExpr(
        "*", f"{ready} + cast(30000 * exp(5 * slow) as long) as claimed", f"{run} as took",
        f"n = tries and {draw(9, 100)} < 98 as well",
    )  # fmt: skip
    last, again = "when n = tries then 'failed'", "not well and n < tries"
    return shape_rows(
        timed.selectExpr(
            "id * 8 + n as position", "id", "queue_id", "tenant", "scope", "queue",
            "case when well then 'complete' when n = tries then 'fail' else 'nack' end as verb",
            f"case when well then 'completed' {last} else 'scheduled' end as state",
            f"case when not well then case {error} end end as error",
            "cast(n as long) as attempts", "cast(n as long) as deliveries",
            f"concat('worker-', {draw(10, CONSUMERS)}) as consumer", "id * 8 + n as fence",
            "timestamp_micros(claimed) as claimed_at", "timestamp_micros(claimed + took) as at",
            f"case when {again} then timestamp_micros(claimed + took + 59000000) end as due_at",
            "n = tries as final",
        ),
        "history",
    )  # fmt: skip


def shape_rows(rows: DataFrame, table: Table) -> DataFrame:
    columns = [
        f.col(field.name).cast(field.dataType).alias(field.name)
        if field.name in rows.columns
        else f.lit(None).cast(field.dataType).alias(field.name)
        for field in to_spark_schema(SCHEMAS[table])
    ]
    return rows.select(*columns)


class Week:
    """A week in two batches: all but the last hour, and the last hour."""

    def __init__(self, spark: SparkSession, url: str, lake: str, rows: int) -> None:
        asyncio.run(make_store(url))
        self.url = url
        self.lake = lake
        self.messages = make_messages(spark, int(rows / ROWS_OF_A_MESSAGE))
        self.history = make_history(self.messages)

    def write(self, number: int) -> None:
        last = f.timestamp_seconds(f.lit(BEGIN + WEEK - 3_600))
        sent, ended = f.col("created_at") < last, f.col("at") < last
        if number == 2:
            sent, ended = ~sent, ~ended
        tables = {"message": self.messages.filter(sent), "history": self.history.filter(ended)}
        with lakes.hold_lock(self.lake, use_store(self.url, make_identity)) as place:
            write_batch(place, number, tables)


async def make_store(url: str) -> None:
    async with await stores.open(url) as store:
        await Broker(store).admin.create_queue("queue100")


def write_batch(place: lakes.Lake, number: int, tables: dict[Table, DataFrame]) -> None:
    parts: list[LakePart] = []
    for table in TABLES:
        folder = Path(place.where) / table / f"batch={number:010}"
        order = "at" if table == "history" else "id"
        rows = tables[table].repartitionByRange(8, order).sortWithinPartitions(order)
        rows.write.parquet(str(folder))
        for path in sorted(folder.glob("*.parquet")):
            count, size = parquet.read_metadata(path).num_rows, path.stat().st_size
            parts.append(LakePart(table, str(path.relative_to(place.where)), count, size, ""))
    start, end = Cursor(0, number - 1, number - 1), Cursor(0, number, number)
    place.publish(Manifest(VERSION, place.label.id, number, number, start, end, "", tuple(parts)))
