"""The balance sheet: what the lake has and what lies above it is what the store has."""

from collections.abc import Collection, Iterator
from functools import partial

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import lake as lakes
from penstock.pipeline.difference import Difference, collected, compared, doubled
from penstock.pipeline.files import Files
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
    damaged = tuple(part.path for part in parts if not sound(place.files, part))
    lost = {path for path in damaged if not readable(place.files, path)}
    tables = {table: rows_of(spark, place.files, parts, table, lost) for table in TABLES}
    ended = tables["history"].filter("final")
    counted = using(url, partial(in_store, place.end))
    lines = tuple(drawn(in_lake(tables["message"], ended), counted))
    found = collected([doubled(tables[table], table) for table in TABLES])
    doubtful = [line for line in lines if line.archived or not line.balanced]
    if exact or counted.moving or damaged or found or doubtful:
        pairs = [compared(spark, url, each, tables[each], ended, place.end) for each in TABLES]
        found += collected(pairs)
    return Balance(lines, damaged, found, counted.moving)


def sound(files: Files, part: Part) -> bool:
    return files.digest(part.path) == part.sha256


def readable(files: Files, path: str) -> bool:
    try:
        with files.parquet(path) as file:
            file.read()
    except (OSError, pa.ArrowException):
        return False
    return True


def rows_of(
    spark: SparkSession, files: Files, parts: list[Part], table: Table, lost: Collection[str]
) -> DataFrame:
    ours = [part.path for part in parts if part.table == table and part.path not in lost]
    return read_parts(spark, files, ours, table)


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
