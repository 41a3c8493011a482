"""Copies sealed audit entries into the lake, each with its place in the hash chain."""

import io
import re
from collections.abc import AsyncIterator, Mapping

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.broker.audit import AuditLog
from penstock.model.documents import AuditEntry
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.schema import MOMENT
from penstock.rules.audit_chain import SealSegment
from penstock.store import Store

FOLDER = "acts"
# The seals of a file, which is written at once.
NAME = re.compile(rf"{FOLDER}/seal-(\d{{19}})-(\d{{19}})\.parquet")
MAX_ROWS = 50_000
TEXTS = ("tenant", "subject", "verb", "target", "scope", "request_id", "detail")
ACTS = pa.schema([
    ("seal", pa.int64()), ("hash", pa.string()), ("id", pa.int64()), ("at", MOMENT),
    *((name, pa.string()) for name in TEXTS),
])  # fmt: skip


async def export_acts(lake: Lake, store: Store) -> int:
    """Copies the entries that were sealed since the last export. Returns how many."""
    log, last, count = AuditLog(store), find_last_seal(lake), 0
    async for segments in group_segments(log, last):
        rows = [
            row
            for segment in segments
            for row in make_rows(segment, await log.read_entries(segment))
        ]
        name = f"{FOLDER}/seal-{segments[0].first:019}-{segments[-1].last:019}.parquet"
        if rows and lake.files.write_once(name, encode_rows(rows)):
            count += len(rows)
    return count


def find_last_seal(lake: Lake) -> int:
    return max((int(found[2]) for name in list_files(lake) if (found := NAME.fullmatch(name))),
               default=0)  # fmt: skip


def list_files(lake: Lake) -> list[str]:
    return sorted(name for name in lake.files.names(FOLDER) if NAME.fullmatch(name))


async def group_segments(log: AuditLog, after: int) -> AsyncIterator[list[SealSegment]]:
    """Joins segments to files of a good size. A segment is never split."""
    held: list[SealSegment] = []
    async for segment in log.read_segments(after):
        held.append(segment)
        if held[-1].last - held[0].first >= MAX_ROWS:
            yield held
            held = []
    if held:
        yield held


def make_rows(
    segment: SealSegment, entries: Mapping[int, AuditEntry]
) -> list[tuple[int, str, AuditEntry]]:
    """Returns number, hash and entry of each seal whose entry is still stored."""
    return [
        (number, seal.hash, entries[seal.entry_id])
        for number, seal in enumerate(segment.seals, segment.first)
        if seal.entry_id in entries
    ]


def encode_rows(rows: list[tuple[int, str, AuditEntry]]) -> bytes:
    acts = [act for _, _, act in rows]
    columns = [
        [number for number, _, _ in rows],
        [hash for _, hash, _ in rows],
        [act.id for act in acts],
        [act.at for act in acts],
        *([getattr(act, name) for act in acts] for name in TEXTS),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ACTS, strict=True)]
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(arrays, schema=ACTS), buffer, compression="zstd")
    return buffer.getvalue()
