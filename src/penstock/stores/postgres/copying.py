"""Restores copied rows into PostgreSQL."""

from collections.abc import Mapping

from msgspec.structs import asdict

from penstock.model.copies import StoreDump
from penstock.stores.postgres.connection import DEADLINE
from penstock.stores.postgres.transaction import PostgresTransaction
from penstock.stores.sql import copying
from penstock.stores.sql.copying import COLUMNS, Rows


async def restore(tx: PostgresTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    await tx.one("restore_counters", **asdict(page.counters))
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: PostgresTransaction, table: str, rows: Rows) -> None:
    if table == "dedup":
        await insert_keys(tx, rows)
        return
    if table == "message":
        # A rank that follows from the priority is not stored.
        rows = [(*row[:4], None if row[4] == -row[3] else row[4], *row[5:]) for row in rows]
    await tx.connection.copy_records_to_table(
        table, schema_name="penstock", columns=COLUMNS[table], records=rows, timeout=DEADLINE
    )


async def insert_keys(tx: PostgresTransaction, rows: Rows) -> None:
    """Skips keys that are there: COPY cannot."""
    queue_ids, keys, ids, digests, expires_ats = zip(*rows, strict=True)
    await tx.run(
        "restore_dedup", queue_ids=queue_ids, keys=keys, ids=ids, digests=digests,
        expires_ats=expires_ats,
    )  # fmt: skip
