"""Health checks of a SQLite store."""

import os

from penstock.store import Check, Durability
from penstock.stores.sql import upkeep
from penstock.stores.sql.waiting import check_waits
from penstock.stores.sqlite.connection import SCHEMA, read_floor
from penstock.stores.sqlite.files import RESERVE_BYTES, StoreFiles
from penstock.stores.sqlite.transaction import SqliteTransaction


async def examine(
    tx: SqliteTransaction, files: StoreFiles | None, durability: Durability
) -> list[Check]:
    found = [
        check_durability(durability),
        check_schema(tx),
        check_integrity(tx),
        await upkeep.check_leases(tx),
        await upkeep.check_exports(tx),
        await upkeep.check_dead(tx),
        await check_waits(tx),
    ]
    return found if files is None else [*found, check_room(files), check_modes(files)]


def check_durability(durability: Durability) -> Check:
    if durability == "safe":
        return Check("durability", "safe: accepted messages survive a power failure")
    return Check("durability", "fast: a power failure may lose the last commits", False)


def check_schema(tx: SqliteTransaction) -> Check:
    (last,) = tx.db.execute("SELECT max(number) FROM penstock_migration").fetchone()
    return Check(
        "schema", f"schema {last}, this version supports {SCHEMA}, minimum {read_floor(tx.db)}"
    )


def check_integrity(tx: SqliteTransaction) -> Check:
    (found,) = tx.db.execute("PRAGMA quick_check(1)").fetchone()
    return Check("integrity", found, found == "ok")


def check_room(files: StoreFiles) -> Check:
    left = files.free_bytes()
    text = f"{left >> 20} MB left, ballast {'ready' if os.path.exists(files.ballast) else 'gone'}"
    return Check("disk", text, left >= 2 * RESERVE_BYTES)


def check_modes(files: StoreFiles) -> Check:
    mode = os.stat(files.path).st_mode & 0o777
    return Check("file mode", f"{mode:o} {files.path}", not mode & 0o077)
