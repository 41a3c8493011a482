"""Extracts the history of a store into the lake: incrementally, and each row once."""

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from operator import gt

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.broker.archive import LakeBatch, save_batch
from penstock.errors import InvalidState
from penstock.model.message import StoredMessage
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.ranges import (
    Range,
    compute_stride,
    find_latest,
    get_position,
    make_ranges,
    read_pages,
)
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.audit_log import export_acts
from penstock.pipeline.lake.delta_log import sync_batches, sync_delta
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.lookup import find_id_range
from penstock.pipeline.lake.manifest import Manifest
from penstock.pipeline.lake.schema import TABLES, VERSION
from penstock.pipeline.lake.writer import Extraction, run
from penstock.pipeline.store_access import make_absolute_url, make_identity, use_store
from penstock.store import Store

# Approximate rows per table of a batch, and of one of its files.
BATCH_ROWS, PART_ROWS = 2_000_000, 200_000
# In the order of version 1. Witnesses stay comparable when Meta gets other fields.
WITNESS_META = (
    "name", "headers", "labels", "content_type", "deadline", "lease", "timeout", "max_attempts",
    "max_deliveries", "ordering_key", "dedup", "correlation_id", "causation_id", "parent_id",
    "traceparent", "hops", "callback",
)  # fmt: skip


class ExtractResult(Struct, frozen=True):
    """Counts what one call extracted. `cursor` is the new end of the lake."""

    batches: int
    messages: int
    history: int
    cursor: Cursor
    # Audit entries.
    acts: int = 0


def extract(
    spark: SparkSession,
    url: str,
    lake: str,
    *,
    batch: int = BATCH_ROWS,
    progress: Callable[[Manifest], None] = lambda _: None,
) -> ExtractResult:
    """Extracts all rows that are final. After a crash, the next call continues without loss or
    duplicates."""
    url = make_absolute_url(url)
    with lakes.hold_lock(lake, use_store(url, make_identity)) as place:
        sync_delta(place)
        # Read before the manifests, because a manifest is written before it is recorded.
        recorded = use_store(url, partial(read_recorded, place))
        chain = place.manifests()
        cursor, target = use_store(url, partial(resume, place, chain, recorded))
        number = chain[-1].last if chain else 0
        if chain and recorded != get_positions(chain[-1].end):
            # A driver was killed between the manifest and the store's record.
            record_batch(url, place, chain[-1])
        written: list[Manifest] = []
        while cursor != target:
            number += 1
            end = use_store(url, partial(choose_next_end, cursor, target, batch))
            manifest = extract_batch(spark, url, place, number, cursor, end)
            written.append(manifest)
            progress(manifest)
            cursor = manifest.end
        acts = use_store(url, partial(export_acts, place))
        return summarize(written, cursor, acts)


async def choose_next_end(start: Cursor, target: Cursor, rows: int, store: Store) -> Cursor:
    ends = []
    for table in TABLES:
        first, step = await compute_stride(
            store, table, get_position(start, table), get_position(target, table), rows
        )
        ends.append(min(first + step, get_position(target, table)))
    return Cursor(target.epoch, *ends)


async def divide_range(start: Cursor, end: Cursor, store: Store) -> list[Range]:
    return [
        part for table in TABLES for part in await make_ranges(store, table, start, end, PART_ROWS)
    ]


def summarize(written: list[Manifest], cursor: Cursor, acts: int) -> ExtractResult:
    parts = [part for manifest in written for part in manifest.parts]
    messages, history = (
        sum(part.rows for part in parts if part.table == table) for table in TABLES
    )
    return ExtractResult(len(written), messages, history, cursor, acts)


def extract_batch(
    spark: SparkSession, url: str, lake: Lake, number: int, start: Cursor, end: Cursor
) -> Manifest:
    """Writes the manifest before the store's record, so that retention waits for the lake."""
    stretches = use_store(url, partial(divide_range, start, end))
    parts = run(spark, lake.where, f"{number:010}", [Extraction(url, part) for part in stretches])
    seen = use_store(url, lambda store: make_witness(store, end))
    manifest = Manifest(
        schema=VERSION,
        lake=lake.label.id,
        first=number,
        last=number,
        start=start,
        end=end,
        witness=seen,
        parts=parts,
    )
    lake.publish(manifest)
    use_store(url, partial(record_cursor, lake, end))
    record_batch(url, lake, manifest)
    sync_batches(lake)
    return manifest


def record_batch(url: str, lake: Lake, manifest: Manifest) -> None:
    """Records which messages the batch has, for when retention has removed them."""
    if (ids := find_id_range(lake.files, manifest)) is not None:
        batch = LakeBatch(lake.label.id, lake.where, manifest.last, *ids)
        use_store(url, lambda store: save_batch(store, batch))


async def resume(
    lake: Lake, chain: list[Manifest], recorded: tuple[int, int], store: Store
) -> tuple[Cursor, Cursor]:
    """Returns the ends of the lake and of the store. From now on retention waits for the lake."""
    end = chain[-1].end if chain else Cursor()
    await refuse_diverged(lake, chain, recorded, store)
    target = await find_latest(store, end)
    cursor = Cursor(target.epoch, end.message, end.history)
    await record_cursor(lake, cursor, store)
    return cursor, target


async def record_cursor(lake: Lake, cursor: Cursor, store: Store) -> None:
    """Saves the cursor, never backwards: where there is no lock, another extract may be ahead."""
    if not any(map(gt, await read_recorded(lake, store), get_positions(cursor))):
        await store.save_cursor(lake.cursor_name, cursor)


async def read_recorded(lake: Lake, store: Store) -> tuple[int, int]:
    exported = (await store.cursors()).get(lake.cursor_name)
    return get_positions(exported.cursor) if exported else (0, 0)


async def refuse_diverged(
    lake: Lake, chain: list[Manifest], recorded: tuple[int, int], store: Store
) -> None:
    """Raises if the lake lost batches or the store was restored from a backup.

    The store's record may be behind the lake if a driver was killed. Then the store must still
    have the rows at the end of the lake.
    """
    reached = get_positions(chain[-1].end) if chain else (0, 0)
    if recorded == reached:
        return
    if any(map(gt, recorded, reached)):
        raise InvalidState(
            f"lake {lake.where!r} lost batches: the store recorded {recorded} and the lake ends at"
            f" {reached}; restore the lake from a copy, or create a new one"
        )
    if await make_witness(store, chain[-1].end) != chain[-1].witness:
        raise InvalidState(
            f"the store is older than lake {lake.where!r}, which ends at {reached} while the store"
            f" recorded {recorded}; if it was restored from a backup, create a new lake"
        )


def get_positions(cursor: Cursor) -> tuple[int, int]:
    return cursor.message, cursor.history


async def make_witness(store: Store, end: Cursor) -> str:
    """Returns a digest of the rows at the end."""
    digest = sha256()
    for table in TABLES:
        last = get_position(end, table)
        async for rows in read_pages(store, Range(table, max(last - 1, 0), last)):
            for row in sorted(rows, key=lambda row: row.id):
                digest.update(format_witness(row).encode())
    return digest.hexdigest()


def format_witness(row: Struct) -> str:
    """Formats a row as version 1 did, so that witnesses of older lakes match."""
    if not isinstance(row, StoredMessage):
        # The feed never has tracebacks, which version 1 did not know.
        return repr(row).replace(", traceback=None)", ")")
    common = join_fields(row, [name for name in StoredMessage.__struct_fields__ if name != "meta"])
    return f"Message({common}, meta=Meta({join_fields(row.meta, WITNESS_META)}))"


def join_fields(row: Struct, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={getattr(row, name)!r}" for name in names)
