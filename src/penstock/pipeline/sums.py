"""Counts and digests by queue, on both sides of the balance sheet."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.ranges import Range, latest, pages, position
from penstock.pipeline.schema import Table
from penstock.store import Store
from penstock.ticket import Cursor, Tally

# How often a store that is written to meanwhile is counted again.
TRIES = 5
# As every store's census does it.
DIGEST = "sum(((id % 1000003) * (id % 1000033)) % 1000000007)"
# Which place of the census a table is counted as; of history only what is final.
PLACES: dict[Table, str] = {"message": "message", "history": "ended"}


class Sum(Struct, frozen=True):
    """A count of messages, and the digest of their ids."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.count + other.count, self.digest + other.digest)

    def __sub__(self, other: "Sum") -> "Sum":
        return Sum(self.count - other.count, self.digest - other.digest)


# By queue id and place.
Sums: TypeAlias = Mapping[tuple[int, str], Sum]


class Counted(Struct, frozen=True):
    """The store's side: all it has, and what of it is above the lake."""

    census: Sums
    above: Sums
    # It was written to all the while, so the two are of different moments.
    moving: bool


def in_lake(messages: DataFrame, ended: DataFrame) -> Sums:
    both = messages.selectExpr("queue_id", "'message' AS place", "id").unionByName(
        ended.selectExpr("queue_id", "'ended' AS place", "id")
    )
    summed = both.groupBy("queue_id", "place").agg(f.count("*"), f.expr(DIGEST))
    return {(row[0], row[1]): Sum(row[2], row[3]) for row in summed.collect()}


async def in_store(end: Cursor, store: Store) -> Counted:
    before, after = None, tallied(await store.census())
    above: Sums = {}
    for _ in range(TRIES):
        above = await above_lake(store, end)
        before, after = after, tallied(await store.census())
        if before == after:
            break
    return Counted(after, above, before != after)


def tallied(census: list[Tally]) -> Sums:
    return {
        (each.queue_id, each.place): Sum(each.count, each.digest)
        for each in census
        if each.place in PLACES.values()
    }


async def above_lake(store: Store, end: Cursor) -> Sums:
    found: dict[tuple[int, str], Sum] = {}
    target = await latest(store, end)
    for table, place in PLACES.items():
        part = Range(table, position(end, table), position(target, table))
        async for rows in pages(store, part):
            for row in rows:
                if getattr(row, "final", True):
                    key = row.queue_id, place
                    found[key] = found.get(key, Sum()) + Sum(1, digest(row.id))
    return found


def digest(id: int) -> int:
    return ((id % 1_000_003) * (id % 1_000_033)) % 1_000_000_007
