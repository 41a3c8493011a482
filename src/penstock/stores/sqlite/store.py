"""Opens, creates and migrates a SQLite store by its path."""

import os
import sqlite3
from contextlib import closing
from typing import TypeAlias
from urllib.parse import quote

from penstock.errors import StoreFull, StoreUnusable
from penstock.store import Clock, Durability
from penstock.stores.migrations import Migration
from penstock.stores.sql.store import SqlStore
from penstock.stores.sqlite.connection import (
    BUSY_TIMEOUT_S,
    MIGRATED,
    MIGRATIONS,
    connect,
    find_missing,
    is_fresh,
    refuse_incomplete,
    set_up,
    translate_error,
)
from penstock.stores.sqlite.database import SqliteDatabase, forks, read_system_clock
from penstock.stores.sqlite.dialect import SqliteDialect
from penstock.stores.sqlite.files import StoreFiles
from penstock.stores.sqlite.notifier import SocketNotifier
from penstock.stores.sqlite.verbs import SqliteVerbs
from penstock.stores.sqlite.writer import WriteTurns

SqliteStore: TypeAlias = SqlStore[SqliteDatabase, SocketNotifier, SqliteDialect]


async def open_sqlite(
    path: str,
    *,
    durability: Durability = "safe",
    clock: Clock | None = None,
    read_only: bool = False,
) -> SqliteStore:
    """Opens the file; an empty `path` means in memory."""
    clock = clock or read_system_clock
    if not path:
        return open_in_turn(path, None, durability, clock)
    if read_only:
        return make_store(open_read_only(path, durability, clock))
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
        return make_store(SqliteDatabase(db, files=files, durability=durability, clock=clock))
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
    write_turns = WriteTurns(f"{files.path}.lock", acquire_timeout_s=BUSY_TIMEOUT_S)
    held = is_fresh(db) and write_turns.enter()
    try:
        set_up(db, clock, durability)
    finally:
        if held:
            write_turns.leave()
        write_turns.close()


def make_store(database: SqliteDatabase) -> SqliteStore:
    dialect = SqliteDialect(database)
    return SqlStore(database, database.notifier, dialect, SqliteVerbs(database))


async def upgrade(path: str, durability: Durability, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    steps = [f"migration {each.number} {each.name}" for each in plan_migrations(path)]
    if not plan:
        await (await open_sqlite(path, durability=durability)).close()
    return steps


def plan_migrations(path: str) -> list[Migration]:
    """Lists missing migrations without creating or changing a file."""
    if not os.path.exists(path):
        return MIGRATIONS
    try:
        with closing(connect_to_look(path)) as db:
            return find_missing(db)
    except StoreUnusable as error:
        raise type(error)(f"{path!r}: {error}") from None
    except sqlite3.Error as error:
        raise translate_error(error, path) from None


def has_tables(path: str) -> bool:
    """True if the file has Penstock's tables; one of another program has not."""
    if not os.path.exists(path):
        return False
    try:
        with closing(connect_to_look(path)) as db:
            return db.execute(MIGRATED).fetchone() is not None
    except sqlite3.Error:
        # Opening it says what is wrong with the file.
        return True


def connect_to_look(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("PRAGMA query_only = ON")
    return db


def open_read_only(path: str, durability: Durability, clock: Clock) -> SqliteDatabase:
    """Opens the file without creating, migrating or locking anything."""
    try:
        db = connect_read_only(path)
    except sqlite3.Error as error:
        raise translate_error(error, path) from None
    if find_missing(db):
        db.close()
        raise StoreUnusable(f"{path!r} is read-only and needs a migration; run it as its owner")
    database = SqliteDatabase(db, files=None, durability=durability, clock=clock)
    database.path = database.writing.path = path
    return database


def connect_read_only(path: str) -> sqlite3.Connection:
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
