"""Compares the lake with the store row by row, up to where the lake is."""

from functools import reduce
from typing import Literal

from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.ranges import get_position
from penstock.pipeline.lake.schema import SCHEMAS, Table, list_added_columns

KEYS: dict[Table, str] = {"message": "id", "history": "position"}
NAMED: dict[Table, tuple[str, ...]] = {"message": ("queue_id",), "history": ("queue_id", "id")}
KIND = """CASE WHEN lake.mark IS NULL THEN 'lost'
               WHEN store.mark IS NULL THEN 'extra' ELSE 'changed' END"""
# Ignored, because a queue may have been renamed.
RENAMED = ("tenant", "scope", "queue")
MAX_DIFFERENCES = 1_000


class Difference(Struct, frozen=True):
    """A row that is lost, doubled or changed in the lake, or that the store never had."""

    kind: Literal["lost", "doubled", "changed", "extra"]
    table: Table
    queue_id: int
    id: int
    position: int | None = None


def find_doubled(rows: DataFrame, table: Table) -> DataFrame:
    grouped = rows.groupBy(KEYS[table]).agg(*take_first(table), f.count("*").alias("times"))
    return select_columns(grouped.filter("times > 1").withColumn("kind", f.lit("doubled")), table)


def take_first(table: Table) -> list[Column]:
    return [f.min(name).alias(name) for name in ("queue_id", "id") if name != KEYS[table]]


def compare_tables(
    spark: SparkSession, url: str, table: Table, lake: DataFrame, ended: DataFrame, end: Cursor
) -> DataFrame:
    """Finds rows that differ. Rows are immutable, so both sides match unless retention removed one.

    Rows from older versions lack newer columns, so null in such a column is no difference.
    """
    source = spark.read.format("penstock").option("url", url).option("table", table)
    store = source.option("until", str(get_position(end, table))).load()
    key = KEYS[table]
    ours, theirs = (
        mark_columns(lake, table, "lake").dropDuplicates([key]),
        mark_columns(store, table, "store"),
    )
    differ = " or ".join(["not lake.mark <=> store.mark", *map(differs, list_added_columns(table))])
    both = ours.join(theirs, key, "full").filter(differ)
    named = [f.expr(f"coalesce(store.{name}, lake.{name})").alias(name) for name in NAMED[table]]
    found = both.select(f.expr(KIND).alias("kind"), key, *named)
    archived = ended.select("id").distinct().withColumn("archived", f.lit(True))
    kept = found.join(archived, "id", "left").filter("kind <> 'extra' or archived is null")
    return select_columns(kept, table)


def differs(column: str) -> str:
    return f"(lake.{column} is not null and not lake.{column} <=> store.{column})"


def mark_columns(rows: DataFrame, table: Table, name: str) -> DataFrame:
    added = list_added_columns(table)
    columns = [each for each in SCHEMAS[table].names if each not in (*RENAMED, *added)]
    text = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})
    mark = f.sha2(text, 256).alias("mark")
    return rows.select(KEYS[table], *NAMED[table], *added, mark).alias(name)


def select_columns(rows: DataFrame, table: Table) -> DataFrame:
    at = f.col("position") if table == "history" else f.lit(None).cast("long")
    return rows.select("kind", f.lit(table).alias("table"), "queue_id", "id", at.alias("position"))


def collect_differences(found: list[DataFrame]) -> tuple[Difference, ...]:
    rows = reduce(DataFrame.unionByName, found).orderBy("kind", "table", "id", "position")
    return tuple(Difference(**row.asDict()) for row in rows.limit(MAX_DIFFERENCES).collect())
