"""Result tables of a lake, with one file per day, listed in one manifest.

The newest manifest is current. It is written atomically, as those of batches are.
"""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidState
from penstock.model.message import Moment
from penstock.pipeline.lake.files import is_data
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import Versioned, make_torn_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Increased when the meaning of a table changes; everything is recomputed then.
VERSION = 2
FOLDER = "_results"
# Each run adds a file to the current day; more than this are merged.
MAX_RUNS_OF_A_DAY = 32
RUN = re.compile(r"/run-(\d{10})/(?:day=([\d-]+)/)?")

ResultTable = Literal[
    "attempt", "metrics_hour", "backlog_minute", "consumer_hour", "anomaly", "triage"
]
RESULT_TABLES: tuple[ResultTable, ...] = (
    "attempt", "metrics_hour", "backlog_minute", "consumer_hour", "anomaly", "triage",
)  # fmt: skip


class ResultFile(Struct, frozen=True):
    """One Parquet file of one day; its path is relative to the lake."""

    table: ResultTable
    day: str
    path: str
    rows: int


class Results(Struct, frozen=True):
    """All result files, computed from the batches up to `through` with these thresholds."""

    schema: int
    lake: str
    number: int
    through: int
    # The latest moment in the lake.
    reached: Moment
    rules: str
    files: tuple[ResultFile, ...]
    # The redacted URL of the store, and when it was read, by its clock.
    store: str = ""
    made_at: Moment = 0
    check: str = ""

    @property
    def name(self) -> str:
        return f"{self.number:010}.json"

    def list_files(
        self, table: ResultTable, days: Collection[str] | None = None
    ) -> list[ResultFile]:
        ours = [file for file in self.files if file.table == table]
        return ours if days is None else [file for file in ours if file.day in days]


def read_newest(lake: Lake) -> Results | None:
    names = list_manifests(lake)
    return read(lake, names[-1]) if names else None


def list_manifests(lake: Lake) -> list[str]:
    return sorted(name for name in lake.files.names(FOLDER) if name.endswith(".json"))


def parse_number(name: str) -> int:
    return int(name.removeprefix(f"{FOLDER}/").removesuffix(".json"))


def read(lake: Lake, name: str) -> Results | None:
    text = lake.files.read(name)
    return None if text is None else decode(text, f"{lake.where}/{name}")


def decode(text: bytes, path: str) -> Results | None:
    """Returns None for an older version, which cannot be used."""
    try:
        version = msgspec.json.decode(text, type=Versioned).schema
        if version > VERSION:
            raise InvalidState(
                f"{path!r} has schema {version} and this Penstock supports up to {VERSION};"
                " upgrade Penstock"
            )
        found = msgspec.json.decode(text, type=Results) if version == VERSION else None
    except msgspec.DecodeError:
        raise make_torn_error(path) from None
    if found is not None and found.check != compute_checksum(found):
        raise make_torn_error(path)
    return found


def compute_checksum(results: Results) -> str:
    return sha256(msgspec.json.encode(replace(results, check=""))).hexdigest()


def choose_next_number(lake: Lake) -> int:
    names = list_manifests(lake)
    return parse_number(names[-1]) + 1 if names else 1


def publish(lake: Lake, results: Results) -> Results:
    whole = replace(results, check=compute_checksum(results))
    name = f"{FOLDER}/{whole.name}"
    written = lake.files.write_once(name, msgspec.json.encode(whole))
    # Another process may have published newer results meanwhile.
    if not written or list_manifests(lake)[-1] != name:
        raise InvalidState(f"another process wrote results {whole.number} of lake {lake.where!r}")
    return whole


def sweep(lake: Lake) -> None:
    """Keeps the last two results, because queries may still read the older one."""
    names = list_manifests(lake)
    lake.files.remove(names[:-2])
    kept = {file.path for name in names[-2:] for file in list_manifest_files(lake, name)}
    last = parse_number(names[-1]) if names else 0
    for table in RESULT_TABLES:
        lake.files.remove(filter(is_data, find_strays(lake, table, kept, last)))


def list_manifest_files(lake: Lake, name: str) -> tuple[ResultFile, ...]:
    found = read(lake, name)
    return found.files if found is not None else ()


def find_strays(lake: Lake, table: ResultTable, kept: Collection[str], last: int) -> list[str]:
    """Lists files that no manifest names and no running job will name."""
    return [
        name
        for name in lake.files.names(table)
        if name not in kept and (lake.files.exclusive or parse_run(name) <= last)
    ]


def make_run_folder(table: ResultTable, number: int) -> str:
    """Has no equals sign, which Delta readers would take for a partition."""
    return f"{table}/run-{number:010}"


def parse_run(name: str) -> int:
    found = RUN.search(name)
    return int(found[1]) if found else 0


def choose_days_to_merge(files: Iterable[ResultFile], today: str) -> set[str]:
    """Returns past days with several files, and the current day if it has too many."""
    runs: dict[str, set[int]] = {}
    for file in files:
        runs.setdefault(file.day, set()).add(parse_run(file.path))
    return {
        day for day, found in runs.items() if len(found) > (1 if day < today else MAX_RUNS_OF_A_DAY)
    }


def write(lake: Lake, rows: "DataFrame", table: ResultTable, number: int) -> list[ResultFile]:
    """Writes rows by day. They become visible when a manifest lists them."""
    saved = lake.files.save(rows, make_run_folder(table, number))
    return [ResultFile(table, parse_day(name), name, count) for name, count in saved]


def parse_day(name: str) -> str:
    found = RUN.search(name)
    return (found[2] or "") if found else ""
