"""What an operator should know of a SQLite store."""

import os

from penstock.store import Check, Durability
from penstock.stores.sql import checks
from penstock.stores.sqlite.database import SCHEMA, floor_of
from penstock.stores.sqlite.files import LOW_WATER, Files
from penstock.stores.sqlite.transaction import Transaction


async def examine(tx: Transaction, files: Files | None, durability: Durability) -> list[Check]:
    found = [
        durable(durability),
        schema(tx),
        integrity(tx),
        await checks.leases(tx),
        await checks.exports(tx),
        await checks.dead(tx),
    ]
    return found if files is None else [*found, room(files), modes(files)]


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


def room(files: Files) -> Check:
    left = files.room()
    text = f"{left >> 20} MB left, ballast {'ready' if os.path.exists(files.ballast) else 'gone'}"
    return Check("disk", text, left >= 2 * LOW_WATER)


def modes(files: Files) -> Check:
    mode = os.stat(files.path).st_mode & 0o777
    return Check("file mode", f"{mode:o} {files.path}", not mode & 0o077)
