"""Health checks of a MariaDB store."""

from typing import Any

from penstock.store import Check
from penstock.stores.mariadb import schema
from penstock.stores.mariadb.connection import MariaDsn
from penstock.stores.mariadb.schema import SCHEMA
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.sql import upkeep
from penstock.stores.sql.waiting import check_waits

# A smaller max_allowed_packet refuses large bodies, in bytes.
MIN_PACKET_BYTES = 16 * 1024 * 1024
# Each export call begins a generation while a transaction holds an older one.
MAX_PENDING_GENERATIONS = 100


async def examine(tx: MariaTransaction, address: MariaDsn) -> list[Check]:
    return [
        await check_durability(tx, address),
        await check_schema(tx),
        await check_packets(tx),
        await check_exports(tx),
        await check_type_index(tx),
        await upkeep.check_leases(tx),
        await upkeep.check_exports(tx),
        await upkeep.check_dead(tx),
        await check_waits(tx),
    ]


async def fetch_value(tx: MariaTransaction, query: str) -> Any:
    return (await tx.session.rows(query))[0][0]


async def check_durability(tx: MariaTransaction, address: MariaDsn) -> Check:
    flushes = await fetch_value(tx, "SELECT @@innodb_flush_log_at_trx_commit")
    if flushes != 1:
        text = f"{address.durability}: innodb_flush_log_at_trx_commit is {flushes} on the server"
        return Check("durability", text, False)
    return Check("durability", "safe: accepted messages survive a power failure")


async def check_schema(tx: MariaTransaction) -> Check:
    last = await fetch_value(tx, "SELECT max(number) FROM penstock_migration")
    floor = await fetch_value(tx, "SELECT max(floor) FROM penstock_migration")
    return Check("schema", f"schema {last}, this version supports {SCHEMA}, minimum {floor}")


async def check_packets(tx: MariaTransaction) -> Check:
    most = await fetch_value(tx, "SELECT @@max_allowed_packet")
    return Check("max_allowed_packet", f"{most} bytes", most >= MIN_PACKET_BYTES)


async def check_exports(tx: MariaTransaction) -> Check:
    """A long write transaction delays the export."""
    count = await fetch_value(tx, "SELECT count(*) FROM penstock_generation")
    if count > MAX_PENDING_GENERATIONS:
        return Check("transactions", "a long write transaction delays the export; end it", False)
    return Check("transactions", "none delays the export")


async def check_type_index(tx: MariaTransaction) -> Check:
    if await schema.lacks_type_index(tx.session):
        return Check("type index", "missing: claims by type are slow; run penstock migrate", False)
    return Check(
        "type index", "present" if await schema.has_type_index(tx.session) else "not needed"
    )
