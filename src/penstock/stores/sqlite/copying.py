"""Restores copied rows into SQLite."""

from collections.abc import Mapping

from penstock.model.copies import StoreCounters, StoreDump
from penstock.stores.sql import copying
from penstock.stores.sql.copying import Rows
from penstock.stores.sqlite.transaction import SQL, SqliteTransaction


async def restore(tx: SqliteTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    await raise_counters(tx, page.counters)
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: SqliteTransaction, table: str, rows: Rows) -> None:
    tx.db.executemany(SQL[f"restore_{table}"], rows)


async def raise_counters(tx: SqliteTransaction, counters: StoreCounters) -> None:
    await tx.run("begin_sequences")
    await tx.run("restore_sequence", message=counters.message)
    await tx.run("restore_counters", fence=counters.fence, pruned=counters.pruned)
