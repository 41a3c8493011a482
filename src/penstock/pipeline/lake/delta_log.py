"""Delta logs of the lake's tables, so that any engine can read them.

Manifests are published first and are authoritative. `sync_delta` then writes the missing commits,
also those that a crashed process did not write.
"""

import io
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.errors import Busy, InvalidState
from penstock.pipeline.analytics.tables import SCHEMAS as RESULT_SCHEMAS
from penstock.pipeline.analytics.tables import split
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.delta import (
    Commit,
    Line,
    Metadata,
    Snapshot,
    apply,
    create_metadata,
    decode_lines,
    encode_lines,
    make_checkpoint_lines,
    make_commit_lines,
    make_create_lines,
    plan_batch_commits,
    plan_result_commits,
)
from penstock.pipeline.lake.files import DELTA_LOG, LakeFiles
from penstock.pipeline.lake.lake import MAX_PARALLEL_READS, Lake
from penstock.pipeline.lake.result_tables import RESULT_TABLES, Results, ResultTable
from penstock.pipeline.lake.schema import SCHEMAS, TABLES, Table
from penstock.retry_policies import DELTA_COMMIT, Retries

PLAIN = {"bigint": "long", "int": "integer"}


def make_table_fields(table: Table) -> list[dict[str, Any]]:
    return [make_field(field.name, from_arrow_type(field.type)) for field in SCHEMAS[table]]


def make_result_fields(table: ResultTable) -> list[dict[str, Any]]:
    columns = [column.split(maxsplit=1) for column in split(RESULT_SCHEMAS[table])]
    return [
        *(make_field(name, from_ddl_type(kind)) for name, kind in columns),
        make_field("day", "date"),
    ]


def make_field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def from_arrow_type(kind: Any) -> Any:
    if pa.types.is_map(kind):
        key, value = from_arrow_type(kind.key_type), from_arrow_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_timestamp(kind):
        return "timestamp"
    names = {
        pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean",
        pa.string(): "string", pa.binary(): "binary",
    }  # fmt: skip
    return names[kind]


def from_ddl_type(kind: str) -> Any:
    """Converts a Spark DDL type: a plain one, or an array of structs."""
    name, _, inner = kind.strip().removesuffix(">").partition("<")
    if name == "array":
        return {"type": "array", "elementType": from_ddl_type(inner), "containsNull": True}
    if name == "struct":
        pairs = (column.split(":", maxsplit=1) for column in split(inner))
        return {
            "type": "struct",
            "fields": [make_field(each, from_ddl_type(of)) for each, of in pairs],
        }
    return PLAIN.get(name, name)


CHECKPOINT_EVERY = 100
# Older commits are removed with a checkpoint, which limits time travel.
KEPT_COMMITS = 1_000
LAST_CHECKPOINT = "_last_checkpoint"
NAME = re.compile(r"/(\d{20})\.(json|checkpoint\.parquet)$")

TEXTS = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema([
    ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
    ("metaData", pa.struct([
        ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
        ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
        ("configuration", TEXTS), ("createdTime", pa.int64()),
    ])),
    ("txn", pa.struct([
        ("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64()),
    ])),
    ("remove", pa.struct([
        ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
    ])),
    ("add", pa.struct([
        ("path", pa.string()), ("partitionValues", TEXTS), ("size", pa.int64()),
        ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string()),
        ("tags", TEXTS),
    ])),
])  # fmt: skip
MAPS = {"partitionValues", "options", "configuration", "tags"}


class DeltaLog:
    """The log of one table."""

    def __init__(self, files: LakeFiles, lake: str, table: str, metadata: Metadata) -> None:
        self.files = files
        self.lake = lake
        self.folder = f"{table}/{DELTA_LOG}"
        self.metadata = metadata

    def read(self) -> Snapshot:
        """Replays the commits since the last checkpoint."""
        commits, checkpoints = self.list_versions()
        begin = max(checkpoints, default=-1)
        later = sorted(version for version in commits if version > begin)
        if later != list(range(begin + 1, begin + 1 + len(later))):
            raise self.make_torn_error()
        snapshot = self.read_checkpoint(begin) if begin >= 0 else Snapshot()
        for version, lines in zip(later, self.read_commits(later), strict=True):
            snapshot = apply(snapshot, version, lines)
        return snapshot

    def list_versions(self) -> tuple[list[int], list[int]]:
        """Lists the versions of commits, and those of checkpoints."""
        found = [match for name in self.files.names(self.folder) if (match := NAME.search(name))]
        commits = [int(match[1]) for match in found if match[2] == "json"]
        return commits, [int(match[1]) for match in found if match[2] != "json"]

    def read_commits(self, versions: Sequence[int]) -> Iterator[list[Line]]:
        with ThreadPoolExecutor(MAX_PARALLEL_READS) as pool:
            texts = list(pool.map(self.files.read, map(self.make_commit_name, versions)))
        for text in texts:
            if not text:
                raise self.make_torn_error()
            try:
                yield decode_lines(text)
            except msgspec.DecodeError:
                raise self.make_torn_error() from None

    def read_checkpoint(self, version: int) -> Snapshot:
        with self.files.parquet(self.make_checkpoint_name(version)) as file:
            rows = file.read().to_pylist()
        return apply(Snapshot(), version, [msgspec.convert(to_maps(row), Line) for row in rows])

    def write(self, snapshot: Snapshot, commit: Commit) -> Snapshot | None:
        """Returns None if another process wrote that version: the caller reads the log again."""
        lines = make_commit_lines(commit, snapshot, self.metadata, self.lake, get_now_ms())
        return self.write_lines(snapshot, lines)

    def create(self, snapshot: Snapshot) -> Snapshot | None:
        return self.write_lines(snapshot, make_create_lines(self.metadata, get_now_ms()))

    def write_lines(self, snapshot: Snapshot, lines: list[Line]) -> Snapshot | None:
        version = snapshot.version + 1
        if not self.files.write_once(self.make_commit_name(version), encode_lines(lines)):
            return None
        written = apply(snapshot, version, lines)
        if version and version % CHECKPOINT_EVERY == 0:
            self.write_checkpoint(written)
        return written

    def write_checkpoint(self, snapshot: Snapshot) -> None:
        lines = make_checkpoint_lines(snapshot, self.lake, get_now_ms())
        buffer = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(list(map(to_pairs, lines)), CHECKPOINT), buffer)
        self.files.write_once(self.make_checkpoint_name(snapshot.version), buffer.getvalue())
        # Readers work without it, so it may be missing for a moment.
        pointer = f"{self.folder}/{LAST_CHECKPOINT}"
        self.files.remove([pointer])
        content = {"version": snapshot.version, "size": len(lines)}
        self.files.write_once(pointer, msgspec.json.encode(content))
        self.drop_before(snapshot.version - KEPT_COMMITS)

    def drop_before(self, version: int) -> None:
        commits, checkpoints = self.list_versions()
        self.files.remove([
            *(self.make_commit_name(each) for each in commits if each < version),
            *(self.make_checkpoint_name(each) for each in checkpoints if each < version),
        ])  # fmt: skip

    def make_commit_name(self, version: int) -> str:
        return f"{self.folder}/{version:020}.json"

    def make_checkpoint_name(self, version: int) -> str:
        return f"{self.folder}/{version:020}.checkpoint.parquet"

    def make_torn_error(self) -> InvalidState:
        return InvalidState(
            f"the Delta log {self.files.where}/{self.folder} is damaged or has a gap; delete that"
            " folder and the next extract rebuilds it"
        )


def get_now_ms() -> int:
    return time.time_ns() // 1_000_000


def to_pairs(line: Line) -> Any:
    """Converts maps to lists of pairs for Arrow."""
    return convert_maps(msgspec.to_builtins(line), lambda each: list(each.items()))


def to_maps(row: Any) -> Any:
    """Converts lists of pairs back to maps, and drops nulls."""
    return convert_maps(row, dict)


def convert_maps(value: Any, convert: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: convert(each) if name in MAPS else convert_maps(each, convert)
        for name, each in value.items()
        if each is not None
    }


def sync_delta(lake: Lake) -> None:
    """Brings the logs of all tables up to the manifests."""
    sync_batches(lake)
    sync_results(lake)


def sync_batches(lake: Lake) -> None:
    logs = {table: open_log(lake, table, make_table_fields(table), False) for table in TABLES}
    retry_conflicts(lambda: append_batches(lake, logs))


def retry_conflicts(append: Callable[[], bool]) -> None:
    """Appends again while other processes take the versions that this one was about to write."""
    retries: Retries | None = None
    while not append():
        retries = retries or DELTA_COMMIT.begin()
        if not retries.again_at_once():
            raise Busy("other processes keep writing the lake's Delta logs; run this again")


def append_batches(lake: Lake, logs: Mapping[Table, DeltaLog]) -> bool:
    """Returns False if another process wrote a commit meanwhile.

    Logs are read before the manifests. If another process commits newer manifests in between, it
    takes the version that this one was about to write.
    """
    snapshots = {table: log.read() for table, log in logs.items()}
    chain = lake.manifests()
    return all(
        append(log, snapshots[table], partial(plan_batch_commits, chain=chain, table=table))
        for table, log in logs.items()
    )


def sync_results(lake: Lake) -> None:
    logs = {
        table: open_log(lake, table, make_result_fields(table), True) for table in RESULT_TABLES
    }
    retry_conflicts(lambda: append_results(lake, logs))


def append_results(lake: Lake, logs: Mapping[ResultTable, DeltaLog]) -> bool:
    """Reads in the order of `append_batches`. Makes no log before there are results."""
    snapshots = {table: log.read() for table, log in logs.items()}
    found = result_tables.read_newest(lake)
    made = [table for table in logs if found or snapshots[table].version >= 0]
    sizes = {table: read_sizes(lake.files, found, table, snapshots[table]) for table in made}
    plans = {
        table: partial(plan_result_commits, found=found, table=table, sizes=sizes[table])
        for table in made
    }
    return all(append(logs[table], snapshots[table], plans[table]) for table in made)


def read_sizes(
    files: LakeFiles, found: Results | None, table: ResultTable, snapshot: Snapshot
) -> dict[str, int]:
    """Returns the sizes of files that the log does not have yet."""
    paths = [file.path for file in found.list_files(table)] if found else []
    named = {path.removeprefix(f"{table}/"): path for path in paths}
    return {name: files.size(path) for name, path in named.items() if name not in snapshot.files}


def append(log: DeltaLog, snapshot: Snapshot, plan: Callable[[Snapshot], Iterable[Commit]]) -> bool:
    """Returns False if another process wrote a commit meanwhile."""
    held = log.create(snapshot) if snapshot.version < 0 else snapshot
    if held is None:
        return False
    for commit in plan(held):
        held = log.write(held, commit)
        if held is None:
            return False
    return True


def open_log(lake: Lake, table: str, fields: Any, partitioned: bool) -> DeltaLog:
    metadata = create_metadata(lake.label.id, table, fields, partitioned)
    return DeltaLog(lake.files, lake.label.id, table, metadata)
