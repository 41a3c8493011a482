"""Health checks shared by the SQL stores."""

from penstock.store import Check
from penstock.stores.sql.transaction import SqlTransaction

STALE_EXPORT = 86_400_000_000
OVERDUE = 60_000_000


async def check_leases(tx: SqlTransaction) -> Check:
    """Overdue leases mean that no reclaimer runs: one reclaims within seconds."""
    overdue = len(await tx.all("lease_expired", now=tx.now - OVERDUE, limit=1_000))
    if overdue:
        return Check("leases", f"{overdue} expired over a minute ago; is a worker running?", False)
    return Check("leases", "none overdue")


async def check_exports(tx: SqlTransaction) -> Check:
    rows = await tx.all("cursors")
    stale = [name for name, *_, at in rows if at < tx.now - STALE_EXPORT]
    if stale:
        return Check("exports", f"no progress for a day: {', '.join(stale)}", False)
    return Check("exports", "none behind")


async def check_dead(tx: SqlTransaction) -> Check:
    count = sum(number for _, number in await tx.all("dead_counts"))
    return Check("dead letters", f"{count}")
