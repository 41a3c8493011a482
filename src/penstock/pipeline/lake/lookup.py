"""Finds one message in a lake, without Spark."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow.compute as compute
from msgspec import Struct

from penstock.model.message import HistoryRow, Meta, Moment, Record, State, StoredMessage, Verb
from penstock.pipeline.lake.files import LakeFiles
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import LakePart, Manifest
from penstock.pipeline.lake.schema import META_COLUMNS, Table
from penstock.wire.fields import to_moment


class LakeMessage(Struct, frozen=True):
    """A message of a lake with its history, and where it was."""

    record: Record
    tenant: str | None
    scope: str | None
    queue: str | None
    # The first batch of the manifest that has it.
    batch: int


def find_message(lake: Lake, id: int) -> LakeMessage | None:
    """Reads only the row groups that can have the message, by their statistics."""
    manifests = lake.manifests()
    for manifest in manifests:
        for row in read_rows(lake.files, [manifest], "message", id):
            # Batches cut history elsewhere than messages, so a row may be in an earlier one.
            timeline = read_timeline(lake.files, manifests, id)
            return LakeMessage(
                make_record(row, timeline), row["tenant"], row["scope"], row["queue"],
                manifest.first,
            )  # fmt: skip
    return None


def read_timeline(
    files: LakeFiles, manifests: Sequence[Manifest], id: int
) -> tuple[HistoryRow, ...]:
    rows = map(make_history_row, read_rows(files, manifests, "history", id))
    return tuple(sorted(rows, key=lambda row: row.position))


def read_rows(
    files: LakeFiles, manifests: Sequence[Manifest], table: Table, id: int
) -> Iterator[dict[str, Any]]:
    for part in list_parts(manifests, table):
        with files.parquet(part.path) as file:
            groups = [
                number
                for number, (low, high) in enumerate(read_id_bounds(file))
                if low <= id <= high
            ]
            for number in groups:
                rows = file.read_row_group(number)
                yield from rows.filter(compute.equal(rows["id"], id)).to_pylist()


def list_parts(manifests: Sequence[Manifest], table: Table) -> Iterator[LakePart]:
    return (part for each in manifests for part in each.parts if part.table == table)


def read_id_bounds(file: Any) -> Iterator[tuple[int, int]]:
    """Yields the smallest and the largest id of each row group."""
    column = file.schema_arrow.names.index("id")
    for number in range(file.metadata.num_row_groups):
        found = find_column(file.metadata.row_group(number), "id", column).statistics
        yield (found.min, found.max) if found and found.has_min_max else (0, 2**63)


def find_column(group: Any, name: str, guess: int) -> Any:
    """Nested columns before it shift the number of a column."""
    numbers = [guess, *range(group.num_columns)]
    return next(
        group.column(number)
        for number in numbers
        if number < group.num_columns and group.column(number).path_in_schema == name
    )


def find_id_range(files: LakeFiles, manifest: Manifest) -> tuple[int, int] | None:
    """Returns the smallest and the largest id of the messages of a batch."""
    bounds: list[tuple[int, int]] = []
    for part in list_parts([manifest], "message"):
        with files.parquet(part.path) as file:
            bounds += read_id_bounds(file)
    if not bounds:
        return None
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def make_record(row: dict[str, Any], timeline: tuple[HistoryRow, ...]) -> Record:
    last = timeline[-1] if timeline else None
    message = StoredMessage(
        id=row["id"],
        queue_id=row["queue_id"],
        type=row["type"],
        priority=row["priority"],
        created_at=to_moment(row["created_at"]),
        body=row["body"],
        meta=Meta(**{name: read_meta(name, row.get(name)) for name in META_COLUMNS}),
    )
    return Record(
        message=message,
        state=last.state if last else State.READY,
        attempts=last.attempts if last else 0,
        deliveries=last.deliveries if last else 0,
        reason=last.reason if last else None,
        error=last.error if last else None,
        run_at=read_moment(row.get("run_at")),
        expires_at=read_moment(row.get("expires_at")),
        timeline=timeline,
    )


def read_meta(name: str, value: Any) -> Any:
    if name in ("headers", "labels"):
        return None if value is None else dict(value)
    if name == "hops":
        return value or 0
    return read_moment(value) if isinstance(value, datetime) else value


def read_moment(value: datetime | None) -> Moment | None:
    return None if value is None else to_moment(value)


def make_history_row(row: dict[str, Any]) -> HistoryRow:
    return HistoryRow(
        position=row["position"],
        id=row["id"],
        queue_id=row["queue_id"],
        verb=Verb(row["verb"]),
        state=State(row["state"]),
        reason=row["reason"],
        error=row["error"],
        attempts=row["attempts"],
        deliveries=row["deliveries"],
        consumer=row["consumer"],
        fence=row["fence"],
        claimed_at=read_moment(row["claimed_at"]),
        at=to_moment(row["at"]),
        due_at=read_moment(row["due_at"]),
        final=row["final"],
    )
