"""Opens connections, migrates and checks the schema, and translates SQLite's errors."""

import sqlite3
from contextlib import closing
from functools import cache

from penstock.errors import StoreBusy, StoreError, StoreFull, StoreTooNew, StoreUnusable
from penstock.store import Clock, Durability
from penstock.stores import migrations
from penstock.stores.migrations import Migration
from penstock.stores.sql import queues
from penstock.stores.sql.transaction import finish
from penstock.stores.sqlite.files import StoreFiles, disk_fails
from penstock.stores.sqlite.transaction import SQL, SqliteTransaction

PACKAGE = "penstock.stores.sqlite"
MIGRATIONS = migrations.load(PACKAGE)
SCHEMA = MIGRATIONS[-1].number
BUSY_TIMEOUT_S = 5.0
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
# Codes that SQLite may return when the disk fails.
UNREADABLE = (*DAMAGED, sqlite3.SQLITE_CANTOPEN)
APPLIED = """
CREATE TABLE IF NOT EXISTS penstock_migration (
    number   INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    checksum TEXT NOT NULL,
    floor    INTEGER NOT NULL,
    at       INTEGER NOT NULL)
"""
MIGRATED = "SELECT 1 FROM sqlite_schema WHERE name = 'penstock_migration'"

COLUMNS = """
SELECT substr(held.name, 10) || '.' || its.name
FROM sqlite_schema AS held JOIN pragma_table_info(held.name) AS its
WHERE held.type = 'table' AND held.name GLOB 'penstock_*'
"""


def connect(path: str, durability: Durability, *, cache: int = 65_536) -> sqlite3.Connection:
    """Opens a connection; `cache` is in KB."""
    try:
        db = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
    except sqlite3.Error as error:
        raise translate_error(error, path) from None
    try:
        keep(db, durability)
        db.execute(f"PRAGMA cache_size = -{cache}")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA journal_size_limit = 67108864")
    except sqlite3.Error as error:
        db.close()
        raise translate_error(error, path) from None
    return db


def keep(db: sqlite3.Connection, durability: Durability) -> None:
    """Sets whether commits are synced to disk from now on."""
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'safe' else 'NORMAL'}")


def set_up(db: sqlite3.Connection, clock: Clock, durability: Durability) -> None:
    """Creates or migrates the schema in one transaction, safe against concurrent starts.

    The file may be the database of an application: only tables that begin with `penstock_` are
    ours, and the application keeps its user_version and application_id.
    """
    if is_fresh(db):
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchone()
    if is_ready(db, durability):
        return
    # The boot id that guards a fast store's counters must be durable.
    keep(db, "safe")
    db.execute("BEGIN IMMEDIATE")
    try:
        migrate(db, clock)
        tx = SqliteTransaction(db, clock())
        finish(queues.create_defaults(tx))
        finish(guard_counters(tx, durability))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    keep(db, durability)


def is_ready(db: sqlite3.Connection, durability: Durability) -> bool:
    """True if the schema is current, so that opening does not wait for a writer."""
    if find_missing(db):
        return False
    kept = db.execute(SQL["fact"], {"name": "fast_boot"}).fetchone()
    return durability == "safe" if kept is None else bool(kept[0] == read_boot_id())


def is_fresh(db: sqlite3.Connection) -> bool:
    mode: str = db.execute("PRAGMA journal_mode").fetchone()[0]
    return mode == "delete"


def find_missing(db: sqlite3.Connection) -> list[Migration]:
    """Returns the migrations to apply: all of them, if the file has no tables of ours."""
    if db.execute(MIGRATED).fetchone() is None:
        return MIGRATIONS
    applied = dict(db.execute("SELECT number, checksum FROM penstock_migration").fetchall())
    return migrations.find_missing(MIGRATIONS, applied, read_floor(db))


def migrate(db: sqlite3.Connection, clock: Clock) -> None:
    db.execute(APPLIED)
    for migration in find_missing(db):
        for statement in split(migration.text):
            db.execute(statement)
        db.execute(
            "INSERT INTO penstock_migration (number, name, checksum, floor, at)"
            " VALUES (?, ?, ?, ?, ?)",
            (migration.number, migration.name, migration.checksum, migration.floor, clock()),
        )


def read_floor(db: sqlite3.Connection) -> int:
    """Returns the oldest schema whose code may write; 0 before the first migration."""
    floor: int | None = db.execute(SQL["floor"]).fetchone()[0]
    return floor or 0


def refuse_newer(db: sqlite3.Connection) -> None:
    """Raises if a newer process has migrated the file while this one runs."""
    if (floor := read_floor(db)) > SCHEMA:
        raise StoreTooNew(
            f"a newer Penstock upgraded the file to schema {floor}, this process supports"
            f" {SCHEMA}; upgrade and restart it"
        )


def split(script: str) -> list[str]:
    statements: list[str] = []
    rest = ""
    for line in script.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest)
            rest = ""
    return statements


def refuse_incomplete(db: sqlite3.Connection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    if lost := sorted(build_expected_columns() - read_columns(db)):
        raise StoreUnusable(f"the schema lacks column {', '.join(lost)}; restore a backup")


@cache
def build_expected_columns() -> frozenset[str]:
    with closing(sqlite3.connect(":memory:")) as db:
        for migration in MIGRATIONS:
            for statement in split(migration.text):
                db.execute(statement)
        return read_columns(db)


def read_columns(db: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in db.execute(COLUMNS))


async def guard_counters(tx: SqliteTransaction, durability: Durability) -> None:
    """Skips counters after a reboot of a `fast` store, which may have lost its last commits.

    Ids and fences are not reused, and the feed begins a new epoch.
    """
    kept = await tx.one("fact", name="fast_boot")
    boot = read_boot_id()
    if kept is not None and kept[0] != boot:
        await tx.run("skip_counters")
        await tx.run("begin_sequences")
        await tx.run("skip_sequences")
        await tx.next_number("epoch")
    if durability == "fast" or kept is not None:
        await tx.run("fact_set", name="fast_boot", value=boot)


def read_boot_id() -> str:
    """Reads the boot id; where there is none, every start counts as a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        import secrets

        return secrets.token_hex(16)


def translate_error(error: sqlite3.Error, path: str, files: StoreFiles | None = None) -> StoreError:
    """Maps a sqlite3 error to a StoreError.

    `files` are those of an open store; they remember an I/O error.
    """
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"{path!r} was locked by another writer for {BUSY_TIMEOUT_S:g} s; try again"
        )
    # IOERR_SHMSIZE: the -shm file could not grow, so the disk is full.
    if code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull(f"the disk of {path!r} is full; free some space")
    if code == sqlite3.SQLITE_IOERR and files is not None:
        files.io_failed = True
    # SQLite reports an unreadable file as malformed.
    if code in UNREADABLE and ((files is not None and files.io_failed) or disk_fails(path)):
        return StoreUnusable(
            f"the disk of {path!r} fails: {error}; check the disk and the file system,"
            " and open the file again on a healthy one: it may be intact"
        )
    if code in DAMAGED:
        return StoreUnusable(
            f"{path!r} is damaged or not a database: {error}; check its disk, then restore a backup"
        )
    if code in UNWRITABLE:
        return StoreUnusable(f"cannot write {path!r}: {error}")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path!r}: {error}; check the disk and the file system")
    return StoreError(f"{path!r}: {error}")
