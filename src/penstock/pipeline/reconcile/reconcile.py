"""Reconciles the lake with the store: the lake plus newer rows must equal the store."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial, reduce
from typing import Literal, TypeAlias

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.model.store_types import Cursor, PlaceCount
from penstock.pipeline.extraction.ranges import Range, find_latest, get_position, read_pages
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.files import LakeFiles
from penstock.pipeline.lake.manifest import LakePart
from penstock.pipeline.lake.reader import read_parts
from penstock.pipeline.lake.schema import SCHEMAS, TABLES, Table, list_added_columns
from penstock.pipeline.store_access import make_absolute_url, make_identity, use_store
from penstock.retry_policies import CENSUS
from penstock.store import Store

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


# The same digest as in the census of every store.
DIGEST = "sum(((id % 1000003) * (id % 1000033)) % 1000000007)"
# The census place of each table. Only final history rows count.
CENSUS_PLACES: dict[Table, str] = {"message": "message", "history": "ended"}


class QueueChecksum(Struct, frozen=True):
    """Message count and a digest of the ids."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: "QueueChecksum") -> "QueueChecksum":
        return QueueChecksum(self.count + other.count, self.digest + other.digest)

    def __sub__(self, other: "QueueChecksum") -> "QueueChecksum":
        return QueueChecksum(self.count - other.count, self.digest - other.digest)


# Keys are queue id and place.
Sums: TypeAlias = Mapping[tuple[int, str], QueueChecksum]


class StoreChecksums(Struct, frozen=True):
    """Checksums of the whole store, and of the part above the lake."""

    census: Sums
    above: Sums
    # The store kept changing, so `census` and `above` are of different moments.
    moving: bool


def sum_lake(messages: DataFrame, ended: DataFrame) -> Sums:
    both = messages.selectExpr("queue_id", "'message' AS place", "id").unionByName(
        ended.selectExpr("queue_id", "'ended' AS place", "id")
    )
    summed = both.groupBy("queue_id", "place").agg(f.count("*"), f.expr(DIGEST))
    return {(row[0], row[1]): QueueChecksum(row[2], row[3]) for row in summed.collect()}


async def sum_store(end: Cursor, store: Store) -> StoreChecksums:
    before, after = None, sum_census(await store.census())
    above: Sums = {}
    retries = CENSUS.begin()
    while True:
        above = await sum_above_lake(store, end)
        before, after = after, sum_census(await store.census())
        if before == after or not await retries.again():
            break
    return StoreChecksums(after, above, before != after)


def sum_census(census: list[PlaceCount]) -> Sums:
    return {
        (each.queue_id, each.place): QueueChecksum(each.count, each.digest)
        for each in census
        if each.place in CENSUS_PLACES.values()
    }


async def sum_above_lake(store: Store, end: Cursor) -> Sums:
    found: dict[tuple[int, str], QueueChecksum] = {}
    target = await find_latest(store, end)
    for table, place in CENSUS_PLACES.items():
        part = Range(table, get_position(end, table), get_position(target, table))
        async for rows in read_pages(store, part):
            for row in rows:
                if getattr(row, "final", True):
                    key = row.queue_id, place
                    found[key] = found.get(key, QueueChecksum()) + QueueChecksum(
                        1, compute_digest(row.id)
                    )
    return found


def compute_digest(id: int) -> int:
    return ((id % 1_000_003) * (id % 1_000_033)) % 1_000_000_007


class BalanceRow(Struct, frozen=True):
    """Counts of one queue: all its messages, or its finished ones. Retention removed `archived`."""

    queue_id: int
    place: str
    lake: int
    above: int
    store: int
    archived: int
    balanced: bool


class Balance(Struct, frozen=True):
    lines: tuple[BalanceRow, ...]
    # Files that are missing or do not match their manifest.
    damaged: tuple[str, ...]
    differences: tuple[Difference, ...]
    # The store kept changing, so only the row comparison counts.
    moving: bool

    @property
    def balanced(self) -> bool:
        equal = self.moving or all(line.balanced for line in self.lines)
        return equal and not self.damaged and not self.differences


def balance(spark: SparkSession, url: str, lake: str, *, exact: bool = False) -> Balance:
    """Compares checksums, and every row if these differ or with `exact`."""
    url = make_absolute_url(url)
    place = lakes.find(lake)
    lakes.refuse_foreign(place, use_store(url, make_identity))
    parts = [part for manifest in place.manifests() for part in manifest.parts]
    damaged = tuple(part.path for part in parts if not has_right_digest(place.files, part))
    lost = {path for path in damaged if not is_readable(place.files, path)}
    tables = {table: read_rows(spark, place.files, parts, table, lost) for table in TABLES}
    ended = tables["history"].filter("final")
    counted = use_store(url, partial(sum_store, place.end))
    lines = tuple(make_rows(sum_lake(tables["message"], ended), counted))
    found = collect_differences([find_doubled(tables[table], table) for table in TABLES])
    doubtful = [line for line in lines if line.archived or not line.balanced]
    if exact or counted.moving or damaged or found or doubtful:
        pairs = [
            compare_tables(spark, url, each, tables[each], ended, place.end) for each in TABLES
        ]
        found += collect_differences(pairs)
    return Balance(lines, damaged, found, counted.moving)


def has_right_digest(files: LakeFiles, part: LakePart) -> bool:
    return files.digest(part.path) == part.sha256


def is_readable(files: LakeFiles, path: str) -> bool:
    try:
        with files.parquet(path) as file:
            file.read()
    except (OSError, pa.ArrowException):
        return False
    return True


def read_rows(
    spark: SparkSession,
    files: LakeFiles,
    parts: list[LakePart],
    table: Table,
    lost: Collection[str],
) -> DataFrame:
    ours = [part.path for part in parts if part.table == table and part.path not in lost]
    return read_parts(spark, files, ours, table)


def make_rows(lake: Sums, counted: StoreChecksums) -> Iterator[BalanceRow]:
    for queue_id in sorted({key[0] for sums in (lake, counted.census) for key in sums}):
        excesses = {
            place: compute_total(lake, counted, queue_id, place)
            - get_sum(counted.census, queue_id, place)
            for place in ("message", "ended")
        }
        # Retention removes a message together with its final row, and only finished ones.
        archived = excesses["message"].count if len({*excesses.values()}) == 1 else 0
        for place, excess in excesses.items():
            yield BalanceRow(
                queue_id,
                place,
                get_sum(lake, queue_id, place).count,
                get_sum(counted.above, queue_id, place).count,
                get_sum(counted.census, queue_id, place).count,
                max(archived, 0),
                excess == QueueChecksum() or archived > 0,
            )


def compute_total(lake: Sums, counted: StoreChecksums, queue_id: int, place: str) -> QueueChecksum:
    return get_sum(lake, queue_id, place) + get_sum(counted.above, queue_id, place)


def get_sum(sums: Sums, queue_id: int, place: str) -> QueueChecksum:
    return sums.get((queue_id, place), QueueChecksum())
