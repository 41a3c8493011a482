"""The balance sheet: what the lake has and what lies above it is what the store has."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import lake as lakes
from penstock.pipeline.difference import Difference, collected, compared, doubled
from penstock.pipeline.manifest import Part
from penstock.pipeline.reading import read_parts
from penstock.pipeline.schema import TABLES, Table
from penstock.pipeline.stores import everywhere, identity, using
from penstock.pipeline.sums import Counted, Sum, Sums, in_lake, in_store


class Line(Struct, frozen=True):
    """Messages of one queue, or those of them that ended. Retention took the archived ones."""

    queue_id: int
    place: str
    lake: int
    above: int
    store: int
    archived: int
    balanced: bool


class Balance(Struct, frozen=True):
    lines: tuple[Line, ...]
    # Files that are gone, or not what their manifest says.
    damaged: tuple[str, ...]
    differences: tuple[Difference, ...]
    # Written to all the while: then only the rows of the lake count, each compared.
    moving: bool

    @property
    def balanced(self) -> bool:
        equal = self.moving or all(line.balanced for line in self.lines)
        return equal and not self.damaged and not self.differences


def balance(spark: SparkSession, url: str, lake: str, *, exact: bool = False) -> Balance:
    """`exact` compares every row; otherwise only if the sums or the files give a reason."""
    url = everywhere(url)
    place = lakes.find(lake)
    lakes.refuse_foreign(place, using(url, identity))
    parts = [part for manifest in place.manifests() for part in manifest.parts]
    damaged = tuple(part.path for part in parts if not sound(place.root, part))
    tables = {table: rows_of(spark, place.root, parts, table) for table in TABLES}
    ended = tables["history"].filter("final")
    counted = using(url, partial(in_store, place.end))
    lines = tuple(drawn(in_lake(tables["message"], ended), counted))
    found = collected([doubled(tables[table], table) for table in TABLES])
    doubtful = [line for line in lines if line.archived or not line.balanced]
    if exact or counted.moving or damaged or found or doubtful:
        pairs = [compared(spark, url, each, tables[each], ended, place.end) for each in TABLES]
        found += collected(pairs)
    return Balance(lines, damaged, found, counted.moving)


def sound(root: Path, part: Part) -> bool:
    try:
        with open(root / part.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256
    except FileNotFoundError:
        return False


def rows_of(spark: SparkSession, root: Path, parts: list[Part], table: Table) -> DataFrame:
    """Without files that cannot be read: their rows are lost."""
    ours = [part for part in parts if part.table == table]
    there = [part for part in ours if sound(root, part) or readable(root / part.path)]
    return read_parts(spark, [str(root / part.path) for part in there], table)


def readable(path: Path) -> bool:
    try:
        parquet.read_table(path)
    except (OSError, pa.ArrowException):
        return False
    return True


def drawn(lake: Sums, counted: Counted) -> Iterator[Line]:
    for queue_id in sorted({key[0] for sums in (lake, counted.census) for key in sums}):
        excesses = {
            place: total(lake, counted, queue_id, place) - at(counted.census, queue_id, place)
            for place in ("message", "ended")
        }
        # Retention takes messages and their ends together, and unfinished ones never.
        archived = excesses["message"].count if len({*excesses.values()}) == 1 else 0
        for place, excess in excesses.items():
            yield Line(
                queue_id,
                place,
                at(lake, queue_id, place).count,
                at(counted.above, queue_id, place).count,
                at(counted.census, queue_id, place).count,
                max(archived, 0),
                excess == Sum() or archived > 0,
            )


def total(lake: Sums, counted: Counted, queue_id: int, place: str) -> Sum:
    return at(lake, queue_id, place) + at(counted.above, queue_id, place)


def at(sums: Sums, queue_id: int, place: str) -> Sum:
    return sums.get((queue_id, place), Sum())
