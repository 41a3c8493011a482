"""Turns many small batches of the lake into one, whose manifest stands for theirs."""

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.errors import InvalidState
from penstock.pipeline import lake as lakes
from penstock.pipeline.manifest import Manifest, Part
from penstock.pipeline.schema import TABLES, VERSION
from penstock.pipeline.writing import Merger, run

# Of the files that become one.
MOST_BYTES = 256_000_000


class Compacted(Struct, frozen=True):
    """How many batches became one, of how many files; and how many were removed for good."""

    batches: int
    files_before: int
    files: int
    removed: int


def compact(spark: SparkSession, lake: str) -> Compacted:
    """What it stands for is removed by the next compaction, when nobody reads it any more."""
    with lakes.held(lake, lakes.find(lake).label.store) as place:
        removed = place.drop_compacted()
        chain = place.manifests()
        if len(chain) < 2:
            return Compacted(0, 0, 0, removed)
        before = [part for each in chain for part in each.parts]
        named = f"{chain[0].first:010}-{chain[-1].last:010}"
        parts = run(spark, place.where, named, mergers(place.where, before))
        refuse_unequal(before, parts)
        place.publish(merged(chain, parts))
        return Compacted(len(chain), len(before), len(parts), removed)


def merged(chain: list[Manifest], parts: tuple[Part, ...]) -> Manifest:
    first, last = chain[0], chain[-1]
    return Manifest(
        VERSION, last.lake, first.first, last.last, first.start, last.end, last.witness, parts
    )


def mergers(lake: str, parts: Sequence[Part]) -> list[Merger]:
    """In their order, up to a size."""
    tasks = []
    for table in TABLES:
        total, numbered = 0, []
        for part in parts:
            if part.table == table:
                total += part.bytes
                numbered.append((total // MOST_BYTES, part.path))
        for _, group in groupby(numbered, key=lambda each: each[0]):
            tasks.append(Merger(lake, table, tuple(path for _, path in group)))
    return tasks


def refuse_unequal(before: Sequence[Part], after: Sequence[Part]) -> None:
    for table in TABLES:
        rows = [sum(part.rows for part in each if part.table == table) for each in (before, after)]
        if rows[0] != rows[1]:
            raise InvalidState(
                f"{table} has {rows[1]} rows after compaction and the manifests say {rows[0]}:"
                " nothing was changed; penstock pipeline balance finds the file"
            )
