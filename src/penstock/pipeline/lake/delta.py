"""Delta log rules: actions, snapshots, and the commits that bring a log up to the manifests.

Pure functions; `delta_log` does the I/O. Uses reader version 1 and writer version 2 of the Delta
protocol, which every engine supports.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.pipeline.lake.lake import is_within
from penstock.pipeline.lake.manifest import LakePart, Manifest
from penstock.pipeline.lake.result_tables import Results, ResultTable
from penstock.pipeline.lake.schema import Table

# Checkpoints keep removed files for a week, the default of Delta.
TOMBSTONE_MS = 7 * 86_400_000


class Protocol(Struct, frozen=True, rename="camel"):
    min_reader_version: int = 1
    min_writer_version: int = 2


class Format(Struct, frozen=True):
    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(Struct, frozen=True, rename="camel"):
    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    format: Format = Format()
    configuration: dict[str, str] = {}


class Transaction(Struct, frozen=True, rename="camel"):
    """The last batch or run of the lake that the log contains."""

    app_id: str
    version: int
    last_updated: int | None = None


class Add(Struct, frozen=True, rename="camel"):
    """A file of the table; its path is relative to the folder of the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None


class Remove(Struct, frozen=True, rename="camel"):
    path: str
    data_change: bool
    deletion_timestamp: int = 0


class CommitInfo(Struct, frozen=True, rename="camel"):
    timestamp: int
    operation: str
    engine_info: str = "penstock"


class Line(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One action, which is one line of a commit file."""

    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Transaction | None = None
    add: Add | None = None
    remove: Remove | None = None
    commit_info: CommitInfo | None = None


class Snapshot(Struct, frozen=True):
    """The state after replaying a log; version -1 if there is none."""

    version: int = -1
    metadata: Metadata | None = None
    # The number of the last batch or run.
    number: int = 0
    files: dict[str, Add] = {}
    removed: dict[str, Remove] = {}


class Commit(Struct, frozen=True):
    """A commit to write, and the batch or run it belongs to."""

    operation: str
    number: int
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    # False if the rows stay the same, as in a compaction.
    data_change: bool = True


def create_metadata(lake: str, table: str, fields: Any, partitioned: bool) -> Metadata:
    """Returns the same metadata in every process, so any of them may create the table."""
    schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
    columns = ("day",) if partitioned else ()
    return Metadata(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{lake}/{table}")), schema, columns)


def make_create_lines(metadata: Metadata, now: int) -> list[Line]:
    """Creates a table without files."""
    return [
        Line(commit_info=CommitInfo(now, "CREATE TABLE")),
        Line(protocol=Protocol()),
        Line(meta_data=metadata),
    ]


def make_commit_lines(
    commit: Commit, snapshot: Snapshot, metadata: Metadata, lake: str, now: int
) -> list[Line]:
    """Includes the schema if it has changed since the snapshot."""
    lines = [Line(commit_info=CommitInfo(now, commit.operation))]
    if snapshot.metadata != metadata:
        lines.append(Line(meta_data=metadata))
    lines.append(Line(txn=Transaction(lake, commit.number, now)))
    change = commit.data_change
    lines += [Line(remove=Remove(path, change, now)) for path in commit.removes]
    lines += [
        Line(add=msgspec.structs.replace(add, data_change=change, modification_time=now))
        for add in commit.adds
    ]
    return lines


def encode_lines(lines: Iterable[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def decode_lines(text: bytes) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in text.splitlines() if line.strip()]


def apply(snapshot: Snapshot, version: int, lines: Iterable[Line]) -> Snapshot:
    metadata, number = snapshot.metadata, snapshot.number
    files, removed = dict(snapshot.files), dict(snapshot.removed)
    for line in lines:
        metadata = line.meta_data or metadata
        number = line.txn.version if line.txn else number
        if line.remove:
            files.pop(line.remove.path, None)
            removed[line.remove.path] = line.remove
        if line.add:
            files[line.add.path] = line.add
            removed.pop(line.add.path, None)
    return Snapshot(version, metadata, number, files, removed)


def make_checkpoint_lines(snapshot: Snapshot, lake: str, now: int) -> list[Line]:
    """Sums up the commits so far for a reader."""
    recent = [
        each for each in snapshot.removed.values() if each.deletion_timestamp > now - TOMBSTONE_MS
    ]
    quiet = [msgspec.structs.replace(each, data_change=False) for each in snapshot.files.values()]
    return [
        Line(protocol=Protocol()),
        Line(meta_data=snapshot.metadata),
        Line(txn=Transaction(lake, snapshot.number)),
        *(Line(remove=each) for each in recent),
        *(Line(add=each) for each in quiet),
    ]


def plan_batch_commits(
    snapshot: Snapshot, chain: Sequence[Manifest], table: Table
) -> Iterator[Commit]:
    """Plans a commit for each manifest that the log lacks, then one for what was compacted.

    The manifests must have been read after the snapshot, so that none of them is older than it.
    """
    if not chain or chain[-1].last < snapshot.number:
        return
    held = set(snapshot.files)
    for manifest in chain:
        if manifest.last > snapshot.number:
            stale = {path for path in held if is_within(path, manifest.name)}
            commit = plan_exchange(stale, make_adds(manifest.parts, table))
            yield Commit("WRITE", manifest.last, *commit)
            held = held.difference(commit[1]).union(add.path for add in commit[0])
    wanted = make_adds([part for each in chain for part in each.parts], table)
    if held != wanted.keys():
        yield Commit("OPTIMIZE", chain[-1].last, *plan_exchange(held, wanted), data_change=False)


def plan_result_commits(
    snapshot: Snapshot, found: Results | None, table: ResultTable, sizes: Mapping[str, int]
) -> Iterator[Commit]:
    """Plans a commit for the newest run. Without results, no file counts any more.

    `sizes` has at least the files that the snapshot does not have.
    """
    number = 0 if found is None else found.number
    wanted = {
        file.path.removeprefix(f"{table}/"): (file.day or None, file.rows)
        for file in (found.list_files(table) if found else ())
    }
    if number == snapshot.number and wanted.keys() == snapshot.files.keys():
        return
    adds = {
        path: Add(path, {"day": day}, sizes.get(path, 0), 0, True, encode_stats(rows))
        for path, (day, rows) in wanted.items()
    }
    yield Commit("WRITE", number, *plan_exchange(set(snapshot.files), adds))


def plan_exchange(
    held: set[str], wanted: Mapping[str, Add]
) -> tuple[tuple[Add, ...], tuple[str, ...]]:
    """Returns what to add and what to remove, so that `wanted` takes the place of what is held."""
    adds = tuple(add for path, add in wanted.items() if path not in held)
    return adds, tuple(sorted(held - wanted.keys()))


def make_adds(parts: Iterable[LakePart], table: Table) -> dict[str, Add]:
    adds = (
        Add(
            path=part.path.removeprefix(f"{table}/"),
            partition_values={},
            size=part.bytes,
            modification_time=0,
            data_change=True,
            stats=encode_stats(part.rows),
        )
        for part in parts
        if part.table == table
    )
    return {add.path: add for add in adds}


def encode_stats(rows: int) -> str:
    """Encodes the row count only. With min and max for some columns, delta-rs assumes null for the
    others, and its Arrow dataset skips the file when a filter uses one of these."""
    return msgspec.json.encode({"numRecords": rows}).decode()
