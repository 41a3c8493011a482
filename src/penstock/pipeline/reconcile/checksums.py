"""Computes counts and digests by queue, for the lake and for the store."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.model.store_types import Cursor, Tally
from penstock.pipeline.extraction.ranges import Range, find_latest, get_position, read_pages
from penstock.pipeline.lake.schema import Table
from penstock.store import Store

# Attempts to count a store that does not change meanwhile.
MAX_TRIES = 5
# The same digest as in the census of every store.
DIGEST = "sum(((id % 1000003) * (id % 1000033)) % 1000000007)"
# The census place of each table. Only final history rows count.
PLACES: dict[Table, str] = {"message": "message", "history": "ended"}


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
    for _ in range(MAX_TRIES):
        above = await sum_above_lake(store, end)
        before, after = after, sum_census(await store.census())
        if before == after:
            break
    return StoreChecksums(after, above, before != after)


def sum_census(census: list[Tally]) -> Sums:
    return {
        (each.queue_id, each.place): QueueChecksum(each.count, each.digest)
        for each in census
        if each.place in PLACES.values()
    }


async def sum_above_lake(store: Store, end: Cursor) -> Sums:
    found: dict[tuple[int, str], QueueChecksum] = {}
    target = await find_latest(store, end)
    for table, place in PLACES.items():
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
