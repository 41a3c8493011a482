"""What was made of a lake: tables of it, a file for each day, all named by one manifest.

The newest manifest counts. It appears whole or not at all, as those of the batches do.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow.parquet as parquet
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame

from penstock.errors import InvalidState
from penstock.message import Moment
from penstock.pipeline.lake import Lake, sync, write_once
from penstock.pipeline.manifest import Versioned, torn

# Grows when a table means something else than before: all is made anew then.
VERSION = 1
FOLDER = "_results"

ResultTable = Literal[
    "attempt", "metrics_hour", "backlog_minute", "consumer_hour", "anomaly", "triage"
]
RESULT_TABLES: tuple[ResultTable, ...] = (
    "attempt", "metrics_hour", "backlog_minute", "consumer_hour", "anomaly", "triage",
)  # fmt: skip


class File(Struct, frozen=True):
    """One Parquet file; its path is relative to the lake. Attempts are of no single day."""

    table: ResultTable
    day: str
    path: str
    rows: int


class Results(Struct, frozen=True):
    """All files, made of the batches up to `through` by the rules of that digest."""

    schema: int
    lake: str
    number: int
    through: int
    # The last moment that the lake tells of.
    reached: Moment
    rules: str
    files: tuple[File, ...]
    check: str = ""

    @property
    def name(self) -> str:
        return f"{self.number:010}.json"

    def of(self, table: ResultTable, days: Collection[str] | None = None) -> list[File]:
        ours = [file for file in self.files if file.table == table]
        return ours if days is None else [file for file in ours if file.day in days]


def newest(lake: Lake) -> Results | None:
    paths = sorted((lake.root / FOLDER).glob("*.json"))
    return decode(paths[-1]) if paths else None


def decode(path: Path) -> Results | None:
    """None for one of an older version, which is of no use any more."""
    text = path.read_bytes()
    try:
        version = msgspec.json.decode(text, type=Versioned).schema
        if version > VERSION:
            raise InvalidState(
                f"{str(path)!r} has schema {version}, and this Penstock knows up to {VERSION}:"
                " upgrade it"
            )
        found = msgspec.json.decode(text, type=Results) if version == VERSION else None
    except msgspec.DecodeError:
        raise torn(str(path)) from None
    if found is not None and found.check != checked(found):
        raise torn(str(path))
    return found


def checked(results: Results) -> str:
    return sha256(msgspec.json.encode(replace(results, check=""))).hexdigest()


def next_number(lake: Lake) -> int:
    paths = sorted((lake.root / FOLDER).glob("*.json"))
    return int(paths[-1].stem) + 1 if paths else 1


def publish(lake: Lake, results: Results) -> Results:
    whole = replace(results, check=checked(results))
    folder = lake.root / FOLDER
    folder.mkdir(exist_ok=True)
    if not write_once(folder / whole.name, msgspec.json.encode(whole)):
        raise InvalidState(f"another process wrote results {whole.number} of {str(lake.root)!r}")
    return whole


def sweep(lake: Lake) -> None:
    """Keeps the last two: somebody may read what was the newest a moment ago."""
    paths = sorted((lake.root / FOLDER).glob("*.json"))
    for path in paths[:-2]:
        path.unlink()
    kept = {file.path for path in paths[-2:] for file in files_of(path)}
    for table in RESULT_TABLES:
        remove_others(lake.root, lake.root / table, kept)


def files_of(path: Path) -> tuple[File, ...]:
    found = decode(path)
    return found.files if found is not None else ()


def remove_others(root: Path, folder: Path, kept: Collection[str]) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            # Spark writes a check sum beside each file.
            owner = name.removeprefix(".").removesuffix(".crc") if name.endswith(".crc") else name
            if str((Path(place) / owner).relative_to(root)) not in kept:
                (Path(place) / name).unlink()
        with suppress(OSError):
            os.rmdir(place)


def write(lake: Lake, rows: DataFrame, table: ResultTable, number: int) -> list[File]:
    """By day, if the rows have one. Not in the lake before a manifest names them."""
    folder = lake.root / table / f"run={number:010}"
    writer = rows.write.mode("overwrite")
    if "day" in rows.columns:
        writer = writer.partitionBy("day")
    writer.parquet(str(folder))
    return list(written(lake.root, folder, table))


def written(root: Path, folder: Path, table: ResultTable) -> Iterable[File]:
    for path in sorted(folder.rglob("*.parquet")):
        rows = parquet.read_metadata(path).num_rows
        if not rows:
            continue
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        sync(path.parent)
        day = path.parent.name.removeprefix("day=") if "day=" in path.parent.name else ""
        yield File(table, day, str(path.relative_to(root)), rows)
