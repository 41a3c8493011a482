"""Merges small neighboring files of the lake, and the manifests of their batches."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.errors import InvalidState
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.delta_log import sync_batches, sync_delta
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import LakePart, Manifest
from penstock.pipeline.lake.schema import TABLES, VERSION
from penstock.pipeline.lake.writer import Merger, run

# Larger files are not rewritten.
LARGE_BYTES = 128_000_000
# Maximum total size of files merged into one.
MAX_MERGED_BYTES = 256_000_000


class CompactResult(Struct, frozen=True):
    """Counts the batches merged, their files before and after, and the manifests removed."""

    batches: int
    files_before: int
    files: int
    removed: int


def compact(spark: SparkSession, lake: str) -> CompactResult:
    """Merges small files. The next compaction removes the old ones, so that queries can finish."""
    with lakes.hold_lock(lake, lakes.find(lake).label.store) as place:
        # Before the drop, so that no Delta log names a removed file.
        sync_delta(place)
        removed = place.drop_compacted()
        batches, before, after = 0, 0, 0
        for chain in split_at_analysed(place.manifests(), read_analysed_through(place)):
            if len(chain) > 1:
                small, merged = merge(spark, place, chain)
                batches, before, after = batches + len(chain), before + small, after + merged
        sync_batches(place)
        return CompactResult(batches, before, after, removed)


def read_analysed_through(lake: Lake) -> int:
    found = result_tables.read_newest(lake)
    return 0 if found is None else found.through


def split_at_analysed(
    chain: Sequence[Manifest], through: int
) -> tuple[list[Manifest], list[Manifest]]:
    """Divides the manifests into those that a run has analyzed and those after them.

    A manifest across that border would make the next run recompute everything.
    """
    done = [each for each in chain if each.last <= through]
    return done, [each for each in chain if each.last > through]


def merge(spark: SparkSession, lake: Lake, chain: Sequence[Manifest]) -> tuple[int, int]:
    """Publishes one manifest for these; returns how many files were merged into how many."""
    parts = [part for each in chain for part in each.parts]
    groups = [group for table in TABLES for group in group_neighbours(parts, table)]
    tasks = [Merger(lake.where, group[0].table, list_part_paths(group)) for group in groups]
    named = f"{chain[0].first:010}-{chain[-1].last:010}"
    written = run(spark, lake.where, named, tasks)
    gone = {part.path for group in groups for part in group}
    kept = tuple(part for part in parts if part.path not in gone)
    refuse_unequal(parts, (*kept, *written))
    lake.publish(make_merged_manifest(chain, (*kept, *written)))
    return len(gone), len(written)


def list_part_paths(parts: Sequence[LakePart]) -> tuple[str, ...]:
    return tuple(part.path for part in parts)


def group_neighbours(parts: Sequence[LakePart], table: str) -> Iterator[list[LakePart]]:
    """Finds two or more small parts that follow each other, up to the size of one file."""
    group: list[LakePart] = []
    for part in [*(each for each in parts if each.table == table), None]:
        if part is None or not fits_group(group, part):
            if len(group) > 1:
                yield group
            group = []
        if part is not None and part.bytes < LARGE_BYTES:
            group.append(part)


def fits_group(group: Sequence[LakePart], part: LakePart) -> bool:
    total = sum(each.bytes for each in group) + part.bytes
    return part.bytes < LARGE_BYTES and total <= MAX_MERGED_BYTES


def make_merged_manifest(chain: Sequence[Manifest], parts: tuple[LakePart, ...]) -> Manifest:
    first, last = chain[0], chain[-1]
    return Manifest(
        schema=VERSION,
        lake=last.lake,
        first=first.first,
        last=last.last,
        start=first.start,
        end=last.end,
        witness=last.witness,
        parts=parts,
    )


def refuse_unequal(before: Sequence[LakePart], after: Sequence[LakePart]) -> None:
    for table in TABLES:
        rows = [sum(part.rows for part in each if part.table == table) for each in (before, after)]
        if rows[0] != rows[1]:
            raise InvalidState(
                f"compaction of {table} gave {rows[1]} rows and the manifests say {rows[0]};"
                " nothing was changed; find the damaged file with penstock pipeline balance"
            )
