"""Opens a SQLite file that this process cannot write, or was asked not to (`?mode=ro`)."""

import os
import sqlite3
from urllib.parse import quote

from penstock.errors import StoreUnusable
from penstock.store import Clock, Durability
from penstock.stores.sqlite.connection import BUSY_TIMEOUT_S, find_missing, translate_error
from penstock.stores.sqlite.database import SqliteDatabase


def open_read_only(path: str, durability: Durability, clock: Clock) -> SqliteDatabase:
    """Opens the file without creating, migrating or locking anything."""
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise translate_error(error, path) from None
    if find_missing(db):
        db.close()
        raise StoreUnusable(f"{path!r} is read-only and needs a migration; run it as its owner")
    database = SqliteDatabase(db, files=None, durability=durability, clock=clock)
    database.path = database.writing.path = path
    return database


def connect(path: str) -> sqlite3.Connection:
    """Reads the file alone if SQLite cannot share it: then no process has it open."""
    if not os.path.exists(path):
        raise StoreUnusable(f"no file {path!r}")
    try:
        return try_connecting(path, "mode=ro")
    except sqlite3.OperationalError:
        log = f"{path}-wal"
        if os.path.exists(log) and os.path.getsize(log):
            raise
        return try_connecting(path, "immutable=1")


def try_connecting(path: str, option: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?{option}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db
