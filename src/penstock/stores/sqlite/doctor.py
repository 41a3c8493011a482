"""What an operator should know of a SQLite store."""

import os

from penstock.store import Check, Durability
from penstock.stores.sqlite.database import SCHEMA, floor_of
from penstock.stores.sqlite.files import LOW_WATER, Files
from penstock.stores.sqlite.transaction import Transaction

STALE_EXPORT = 86_400_000_000
OVERDUE = 60_000_000


def examine(tx: Transaction, files: Files | None, durability: Durability) -> list[Check]:
    checks = [durable(durability), schema(tx), integrity(tx), leases(tx), exports(tx), dead(tx)]
    return checks if files is None else [*checks, room(files), modes(files)]


def durable(durability: Durability) -> Check:
    if durability == "safe":
        return Check("durability", "safe: what was accepted survives a power cut")
    return Check("durability", "fast: a power cut may take the last second of commits", False)


def schema(tx: Transaction) -> Check:
    (last,) = tx.db.execute("SELECT max(number) FROM migration").fetchone()
    return Check("schema", f"schema {last}, this code knows {SCHEMA}, floor {floor_of(tx.db)}")


def integrity(tx: Transaction) -> Check:
    (found,) = tx.db.execute("PRAGMA quick_check(1)").fetchone()
    return Check("integrity", found, found == "ok")


def leases(tx: Transaction) -> Check:
    """An agent reclaims within seconds; leases long over mean that none is running."""
    overdue = len(tx.all("lease_expired", (tx.now - OVERDUE, 1_000)))
    if overdue:
        return Check("leases", f"{overdue} ran out over a minute ago: is a worker running?", False)
    return Check("leases", "none is overdue")


def exports(tx: Transaction) -> Check:
    stale = [
        name
        for name, at in tx.db.execute("SELECT name, advanced_at FROM cursor")
        if at < tx.now - STALE_EXPORT
    ]
    if stale:
        return Check("exports", f"not advanced for a day: {', '.join(stale)}", False)
    return Check("exports", "none is behind")


def dead(tx: Transaction) -> Check:
    count = sum(number for _, number in tx.all("dead_counts"))
    return Check("dead letters", f"{count}")


def room(files: Files) -> Check:
    left = files.room()
    text = f"{left >> 20} MB left, ballast {'ready' if os.path.exists(files.ballast) else 'gone'}"
    return Check("disk", text, left >= 2 * LOW_WATER)


def modes(files: Files) -> Check:
    mode = os.stat(files.path).st_mode & 0o777
    return Check("file mode", f"{mode:o} {files.path}", not mode & 0o077)
