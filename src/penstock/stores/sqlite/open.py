"""Opens a SQLite store by its path."""

import sqlite3

from penstock.errors import StoreFull, StoreUnusable
from penstock.store import Clock, Durability
from penstock.stores.sqlite.connection import (
    BUSY_TIMEOUT_S,
    connect,
    is_fresh,
    set_up,
    translate_error,
)
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.files import StoreFiles
from penstock.stores.sqlite.forks import forks
from penstock.stores.sqlite.schema import refuse_incomplete
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.sqlite.write_turns import WriteTurns


async def open_sqlite(
    path: str, *, durability: Durability = "safe", clock: Clock | None = None
) -> SqliteStore:
    """Opens the file; an empty `path` means in memory."""
    clock = clock or read_system_clock
    if not path:
        return open_in_turn(path, None, durability, clock)
    files = StoreFiles(path)
    files.prepare()
    try:
        return open_in_turn(path, files, durability, clock)
    except StoreFull:
        # A full disk must not prevent opening: settling frees space.
        if not files.drop_ballast():
            raise
        return open_in_turn(path, files, durability, clock)


def open_in_turn(
    path: str, files: StoreFiles | None, durability: Durability, clock: Clock
) -> SqliteStore:
    with forks.opening:
        return open_without_waiting(path, files, durability, clock)


def open_without_waiting(
    path: str, files: StoreFiles | None, durability: Durability, clock: Clock
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
        raise translate_error(error, path) from None


def set_up_in_turn(
    db: sqlite3.Connection, files: StoreFiles, clock: Clock, durability: Durability
) -> None:
    """Lets one process create the file, because switching to WAL does not wait for locks."""
    gate = WriteTurns(f"{files.path}.lock", patience=BUSY_TIMEOUT_S)
    held = is_fresh(db) and gate.enter()
    try:
        set_up(db, clock, durability)
    finally:
        if held:
            gate.leave()
        gate.close()
