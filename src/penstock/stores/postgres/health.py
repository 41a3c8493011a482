"""Health checks of a PostgreSQL store."""

from typing import Any

from penstock.store import Check
from penstock.stores.postgres.connection import SETTINGS, PostgresDsn
from penstock.stores.postgres.schema import SCHEMA
from penstock.stores.postgres.transaction import SQL, PostgresTransaction
from penstock.stores.sql import upkeep
from penstock.stores.sql.waiting import check_waits

# A transaction this old (seconds) keeps vacuum from removing dead rows.
OLD_SNAPSHOT_S = 300
# One that writes has an xid, in whichever database of the server. One that idles between two
# statements has no snapshot. Another user's transaction has no visible start.
OLDEST_TRANSACTION = """
SELECT coalesce(extract(epoch FROM now() - xact_start)::int, 0), pid, application_name
FROM pg_stat_activity
WHERE pid <> pg_backend_pid()
    AND (backend_xid IS NOT NULL OR (backend_xmin IS NOT NULL AND datname = current_database()))
ORDER BY xact_start NULLS LAST LIMIT 1
"""


async def examine(tx: PostgresTransaction, address: PostgresDsn) -> list[Check]:
    return [
        await check_durability(tx, address),
        await check_schema(tx),
        await check_sessions(tx),
        await check_transactions(tx),
        await check_type_index(tx),
        await upkeep.check_leases(tx),
        await upkeep.check_exports(tx),
        await upkeep.check_dead(tx),
        await check_waits(tx),
    ]


async def fetch_value(tx: PostgresTransaction, query: str) -> Any:
    return await tx.connection.fetchval(query)


async def check_durability(tx: PostgresTransaction, address: PostgresDsn) -> Check:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    off = [name for name in names if await fetch_value(tx, f"SHOW {name}") == "off"]
    if off:
        return Check(
            "durability", f"{address.durability}: {', '.join(off)} off on the server", False
        )
    return Check("durability", "safe: accepted messages survive a power failure")


async def check_schema(tx: PostgresTransaction) -> Check:
    last = await fetch_value(tx, "SELECT max(number) FROM penstock.migration")
    floor = await fetch_value(tx, "SELECT max(floor) FROM penstock.migration")
    return Check("schema", f"schema {last}, this version supports {SCHEMA}, minimum {floor}")


async def check_sessions(tx: PostgresTransaction) -> Check:
    """Checks the session settings, which a pooler may drop."""
    wrong = [
        name
        for name, wanted in SETTINGS.items()
        if name in ("enable_seqscan", "jit", "plan_cache_mode")
        and await fetch_value(tx, f"SHOW {name}") != wanted
    ]
    if wrong:
        text = f"{', '.join(wrong)} reset by a pooler; set pooler=on and run penstock migrate"
        return Check("sessions", text, False)
    return Check("sessions", "settings are in effect")


async def check_transactions(tx: PostgresTransaction) -> Check:
    """Names the oldest transaction that holds back vacuum, or, if it writes, the history."""
    row = await tx.connection.fetchrow(OLDEST_TRANSACTION)
    if row is None:
        return Check("transactions", "no other is open")
    age, pid, application = row
    text = f"the oldest has been open for {age} s (pid {pid}, application {application!r})"
    return Check("transactions", text, age <= OLD_SNAPSHOT_S)


async def check_type_index(tx: PostgresTransaction) -> Check:
    valid = await fetch_value(
        tx, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('penstock.ready_type')"
    )
    if await fetch_value(tx, SQL["index_lacking"].text):
        found = "missing" if valid is None else "half-built"
        return Check("type index", f"{found}: claims by type are slow; run penstock migrate", False)
    return Check("type index", "present" if valid else "not needed")
