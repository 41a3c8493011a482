"""Opens a SQLite store by its path."""

import sqlite3

from penstock.errors import StoreFull, StoreUnusable
from penstock.store import Clock, Durability
from penstock.stores.sqlite.columns import refuse_incomplete
from penstock.stores.sqlite.database import BUSY, connect, fresh, named, set_up
from penstock.stores.sqlite.engine import system_clock
from penstock.stores.sqlite.files import Files
from penstock.stores.sqlite.forks import forks
from penstock.stores.sqlite.gate import Gate
from penstock.stores.sqlite.store import SqliteStore


async def open_sqlite(
    path: str, *, durability: Durability = "safe", clock: Clock | None = None
) -> SqliteStore:
    """`path` empty means in memory."""
    clock = clock or system_clock
    if not path:
        return opened(path, None, durability, clock)
    files = Files(path)
    files.prepare()
    try:
        return opened(path, files, durability, clock)
    except StoreFull:
        # On a full disk, too, somebody must come and settle.
        if not files.drop_ballast():
            raise
        return opened(path, files, durability, clock)


def opened(path: str, files: Files | None, durability: Durability, clock: Clock) -> SqliteStore:
    with forks.opening:
        return opened_undisturbed(path, files, durability, clock)


def opened_undisturbed(
    path: str, files: Files | None, durability: Durability, clock: Clock
) -> SqliteStore:
    db = connect(path or ":memory:", durability)
    try:
        if files is None:
            set_up(db, clock, durability)
        else:
            set_up_in_turn(db, files, clock, durability)
            refuse_incomplete(db)
            files.load_ballast()
        return SqliteStore(db, files=files, durability=durability, clock=clock)
    except StoreUnusable as error:
        db.close()
        raise type(error)(f"{path!r}: {error}") from None
    except sqlite3.Error as error:
        db.close()
        raise named(error, path) from None


def set_up_in_turn(
    db: sqlite3.Connection, files: Files, clock: Clock, durability: Durability
) -> None:
    """A fresh file is made by one process: SQLite does not wait its turn to switch to WAL."""
    gate = Gate(f"{files.path}.lock", patience=BUSY)
    held = fresh(db) and gate.enter()
    try:
        set_up(db, clock, durability)
    finally:
        if held:
            gate.leave()
        gate.close()
