"""Adapts callers' SQLite connections, and publishes and completes in their open transactions."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from penstock.errors import InvalidInput, LockLost, StoreBusy
from penstock.model.changes import Change, Changed
from penstock.model.message import Moment
from penstock.model.store_types import AnswerKind, Completion, Entry, Published
from penstock.model.waiting import StepSave, StepSaved
from penstock.stores.driver_adapters import CallerConnection, DriverAdapters
from penstock.stores.sql import advance as advancing
from penstock.stores.sql.settle import complete_one
from penstock.stores.sql.steps import save_step_inside
from penstock.stores.sql.transaction import finish
from penstock.stores.sqlite.connection import refuse_newer, translate_error
from penstock.stores.sqlite.publish import publish_atomic, publish_holding
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import Work

T = TypeVar("T")


class Sqlite3Connection(CallerConnection):
    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    async def arun(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)


class AiosqliteConnection(Sqlite3Connection):
    """Its sqlite3 connection may be used on its own thread only."""

    waits = True

    async def arun(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # aiosqlite has no public method that runs a function on its thread.
        result: T = await self.connection._execute(work, self.connection._conn)
        return result


def adapt_driver(connection: Any) -> Sqlite3Connection | None:
    if isinstance(connection, sqlite3.Connection):
        return Sqlite3Connection(connection)
    if is_aiosqlite(connection):
        return AiosqliteConnection(connection)
    if is_django(connection):
        connection.ensure_connection()
        return adapt_driver(connection.connection)
    return None


def is_aiosqlite(connection: object) -> bool:
    aiosqlite = sys.modules.get("aiosqlite")
    return aiosqlite is not None and isinstance(connection, aiosqlite.Connection)


def is_django(connection: object) -> bool:
    return "django.db" in sys.modules and hasattr(connection, "in_atomic_block")


ADAPTERS = DriverAdapters("sqlite3, aiosqlite, SQLAlchemy or Django", adapt_driver)


def in_transaction(connection: Any) -> bool:
    """True inside a transaction; False for a closed connection. Begins none."""
    try:
        raw = find_driver_connection(connection)
        return bool(raw.in_transaction) if raw is not None else False
    except (sqlite3.ProgrammingError, ValueError):
        # sqlite3 and aiosqlite raise these for a closed connection.
        return False


def find_driver_connection(connection: Any) -> Any:
    """Returns the connection of sqlite3 or aiosqlite; None if there is none yet."""
    if isinstance(connection, sqlite3.Connection) or is_aiosqlite(connection):
        return connection
    if is_django(connection):
        return connection.connection
    sqlalchemy, orm = sys.modules.get("sqlalchemy"), sys.modules.get("sqlalchemy.orm")
    if sqlalchemy is None:
        return None
    # The sync side of an AsyncSession or AsyncConnection.
    connection = getattr(
        connection, "sync_session", getattr(connection, "sync_connection", connection)
    )
    if orm is not None and isinstance(connection, orm.scoped_session):
        connection = connection()
    if orm is not None and isinstance(connection, orm.Session):
        connection = connection.connection() if connection.in_transaction() else None
    if isinstance(connection, sqlalchemy.Connection) and not connection.closed:
        return connection.connection.driver_connection
    return None


P = ParamSpec("P")


def publish(
    connection: sqlite3.Connection, path: str, now: Moment, entries: Sequence[Entry]
) -> tuple[list[Published], bool]:
    """Publishes in the caller's transaction, begun if there is none; the caller commits it.

    A connection in autocommit mode and outside a transaction commits at once: then the second
    value is True.
    """
    with use_connection(connection, path) as db:
        if db.in_transaction:
            return run_in_savepoint(db, now, publish_holding, entries), False
        db.execute("BEGIN IMMEDIATE")
        return publish_begun(db, now, entries), not db.in_transaction


def complete(connection: sqlite3.Connection, path: str, now: Moment, item: Completion) -> None:
    with use_connection(connection, path) as db:
        if not db.in_transaction:
            if is_autocommit(db):
                raise InvalidInput("begin a transaction first; the completion commits with it")
            db.execute("BEGIN IMMEDIATE")
        answer = run_in_savepoint(db, now, complete_one, item)
    if answer.kind is not AnswerKind.DONE:
        raise LockLost(f"message {item.id}: its lock was lost; roll back your transaction")


def save_step(connection: sqlite3.Connection, path: str, now: Moment, item: StepSave) -> StepSaved:
    with use_connection(connection, path) as db:
        if not db.in_transaction:
            if is_autocommit(db):
                raise InvalidInput("begin a transaction first; the step commits with it")
            db.execute("BEGIN IMMEDIATE")
        return run_in_savepoint(db, now, save_step_inside, item)


def advance(
    connection: sqlite3.Connection, path: str, now: Moment, change: Change
) -> Changed | None:
    """Writes documents and messages in the caller's transaction, if its guards hold."""
    with use_connection(connection, path) as db:
        if not db.in_transaction:
            if is_autocommit(db):
                raise InvalidInput("begin a transaction first; the workflow commits with it")
            db.execute("BEGIN IMMEDIATE")
        return run_in_savepoint(db, now, advancing.advance, change, publish_atomic, None)


@contextmanager
def use_connection(connection: sqlite3.Connection, path: str) -> Iterator[sqlite3.Connection]:
    """Checks that the connection is to the store's file, and translates its errors."""
    try:
        with use_plain_rows(connection):
            check_same_file(connection, path)
            yield connection
    except sqlite3.ProgrammingError as error:
        raise InvalidInput(f"the connection cannot be used: {error}") from None
    except sqlite3.Error as error:
        raise translate_busy(error, connection, path) from error


@contextmanager
def use_plain_rows(db: sqlite3.Connection) -> Iterator[None]:
    """Resets the caller's row and text factories while we use the connection."""
    factories = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str
    try:
        yield
    finally:
        db.row_factory, db.text_factory = factories


def is_autocommit(db: sqlite3.Connection) -> bool:
    """True if statements outside a transaction commit on their own."""
    # `autocommit` is new in Python 3.12; -1 means the legacy isolation_level.
    autocommit = getattr(db, "autocommit", -1)
    return db.isolation_level is None if autocommit == -1 else bool(autocommit)


def check_same_file(db: sqlite3.Connection, path: str) -> None:
    (file,) = (row[2] for row in db.execute("PRAGMA database_list") if row[1] == "main")
    if not file or not os.path.exists(path) or not os.path.samefile(file, path):
        raise InvalidInput(
            f"the connection is to {file or 'memory'!r}, the queue is in {path!r};"
            " one transaction cannot span two databases"
        )


def publish_begun(db: sqlite3.Connection, now: Moment, entries: Sequence[Entry]) -> list[Published]:
    """Publishes in the transaction we began; does not leave an empty one open."""
    try:
        outcomes = run_in_savepoint(db, now, publish_holding, entries)
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if is_autocommit(db) or all(outcome.code is not None for outcome in outcomes):
        db.execute("COMMIT")
    return outcomes


def run_in_savepoint(
    db: sqlite3.Connection, now: Moment, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Undoes only our statements on failure, so that the caller's transaction survives."""
    db.execute("SAVEPOINT penstock")
    try:
        refuse_newer(db)
        tx = SqliteTransaction(db, now)
        value = finish(work(tx, *args, **kwargs))
    except BaseException:
        # Some errors, such as a full disk, have already rolled back the whole transaction.
        if db.in_transaction:
            db.execute("ROLLBACK TO penstock")
            db.execute("RELEASE penstock")
        raise
    db.execute("RELEASE penstock")
    return value


def translate_busy(error: sqlite3.Error, db: sqlite3.Connection, path: str) -> Exception:
    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    if busy and db.in_transaction:
        return StoreBusy(
            "the database is locked by another writer, or has changed since your transaction read"
            " it; start with BEGIN IMMEDIATE, or commit before enqueueing"
        )
    return translate_error(error, path)
