"""Restores copied rows into MariaDB."""

from collections.abc import Iterator, Mapping

from penstock.model.copies import StoreCounters, StoreDump
from penstock.stores.mariadb.publish import ONE_PACKET
from penstock.stores.mariadb.statement import fill_statement, to_tuples
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql import copying
from penstock.stores.sql.copying import COLUMNS, Rows

FINAL = COLUMNS["history"].index("final")


async def restore(tx: MariaTransaction, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
    await raise_counters(tx, page.counters)
    return await copying.restore(tx, insert, page, queue_ids)


async def insert(tx: MariaTransaction, table: str, rows: Rows) -> None:
    if table == "history":
        # A message ends once: final is 1 or NULL.
        rows = [(*row[:FINAL], row[FINAL] or None, *row[FINAL + 1 :]) for row in rows]
    for chunk in split_into_packets(rows):
        await tx.send(fill_statement(f"restore_{table}", rows=to_tuples(chunk)))


def split_into_packets(rows: Rows) -> Iterator[Rows]:
    start = length = 0
    for end, row in enumerate(rows):
        size = sum(len(value) for value in row if isinstance(value, bytes | str))
        length += size
        if start < end and length > ONE_PACKET:
            yield rows[start:end]
            start, length = end, size
    yield rows[start:]


async def raise_counters(tx: MariaTransaction, counters: StoreCounters) -> None:
    found = await tx.one("copy_counters")
    if found[0] < counters.message:
        await tx.send(fill_statement("restore_sequence", message=counters.message))
    await tx.send(
        fill_statement("restore_counters", fence=max(counters.fence, 1), pruned=counters.pruned)
    )
