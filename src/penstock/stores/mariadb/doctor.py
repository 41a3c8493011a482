"""What an operator should know of a MariaDB store."""

from typing import Any

from penstock.store import Check
from penstock.stores.mariadb import type_index
from penstock.stores.mariadb.address import Address
from penstock.stores.mariadb.migrate import SCHEMA
from penstock.stores.mariadb.transaction import Transaction
from penstock.stores.sql import checks

# Fewer bytes than this keep large bodies out.
PACKET = 16 * 1024 * 1024
# Generations that wait for the end of a transaction; each look of an export begins one.
MANY = 100


async def examine(tx: Transaction, address: Address) -> list[Check]:
    return [
        await durable(tx, address),
        await schema(tx),
        await packets(tx),
        await exports(tx),
        await types(tx),
        await checks.leases(tx),
        await checks.exports(tx),
        await checks.dead(tx),
    ]


async def value(tx: Transaction, query: str) -> Any:
    return (await tx.session.rows(query))[0][0]


async def durable(tx: Transaction, address: Address) -> Check:
    flushes = await value(tx, "SELECT @@innodb_flush_log_at_trx_commit")
    if flushes != 1:
        text = f"{address.durability}: innodb_flush_log_at_trx_commit is {flushes} on the server"
        return Check("durability", text, False)
    return Check("durability", "safe: what was accepted survives a power cut")


async def schema(tx: Transaction) -> Check:
    last = await value(tx, "SELECT max(number) FROM penstock_migration")
    floor = await value(tx, "SELECT max(floor) FROM penstock_migration")
    return Check("schema", f"schema {last}, this code knows {SCHEMA}, floor {floor}")


async def packets(tx: Transaction) -> Check:
    most = await value(tx, "SELECT @@max_allowed_packet")
    return Check("max_allowed_packet", f"{most} bytes", most >= PACKET)


async def exports(tx: Transaction) -> Check:
    """A transaction that nobody ends keeps the export waiting."""
    count = await value(tx, "SELECT count(*) FROM penstock_generation")
    if count > MANY:
        return Check("transactions", "one that writes is open for long: who is it?", False)
    return Check("transactions", "none holds up the export")


async def types(tx: Transaction) -> Check:
    if await type_index.lacking(tx.session):
        return Check("type index", "missing: claims by type are slow; penstock migrate", False)
    return Check("type index", "there" if await type_index.there(tx.session) else "not needed")
