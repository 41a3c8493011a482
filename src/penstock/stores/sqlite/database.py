"""Runs work on the writer thread, on a pooled reader, or on the caller's thread.

All connections are closed around a fork: SQLite remembers in process memory which locks it holds.
A forked child has the memory but not the locks, and could write to a -wal file that others have
deleted.
"""

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import ParamSpec, Protocol, TypeVar

from penstock.errors import StoreClosed, StoreUnusable
from penstock.model.message import Moment
from penstock.store import Capabilities, Clock, Durability
from penstock.stores.sqlite.connection import connect, read_floor, translate_error
from penstock.stores.sqlite.files import StoreFiles
from penstock.stores.sqlite.notifier import CommitWatcher, SocketNotifier
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import (
    NEXT,
    Applier,
    InlineWriter,
    ThreadWriter,
    Work,
    WriteTurns,
)


class ForkableStore(Protocol):
    def leave(self) -> None:
        """Waits until no connection is in use, then closes them."""

    def reopen(self) -> None:
        """Reopens the connections in the parent."""

    def forget(self) -> None:
        """Marks the store closed in the child, which has to open its own."""


class ForkGuard:
    """Tracks the open stores. `opening` is held while one opens and during a fork."""

    def __init__(self) -> None:
        self.opening = threading.RLock()
        self.stores: weakref.WeakSet[ForkableStore] = weakref.WeakSet()
        self.left: list[ForkableStore] = []
        self.heard = False

    def add(self, store: ForkableStore) -> None:
        self.stores.add(store)
        if not self.heard:
            self.heard = True
            os.register_at_fork(
                before=self.close_before_fork,
                after_in_parent=self.in_parent,
                after_in_child=self.in_child,
            )

    def close_before_fork(self) -> None:
        self.opening.acquire()
        self.left = list(self.stores)
        for store in self.left:
            store.leave()

    def in_parent(self) -> None:
        left, self.left = self.left, []
        for store in left:
            store.reopen()
        self.opening.release()

    def in_child(self) -> None:
        left, self.left = self.left, []
        for store in left:
            store.forget()
        self.stores.clear()
        self.opening = threading.RLock()


# One per process, because a fork copies the whole process.
forks = ForkGuard()


P = ParamSpec("P")
T = TypeVar("T")
READERS = 2


def read_system_clock() -> Moment:
    return time.time_ns() // 1000


class SqliteDatabase:
    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        files: StoreFiles | None,
        durability: Durability,
        clock: Clock,
    ) -> None:
        self.path = ":memory:" if files is None else files.path
        self.files = files
        self.clock = clock
        # closed: no new work is accepted; gone: no connection is open.
        self.closed = self.gone = False
        # Guards the reader.
        self.reading = threading.Lock()
        self.capabilities = Capabilities("sqlite", durability)
        self.notifier = SocketNotifier(None if files is None else f"{files.path}.wake")
        self.writing = Applier(db, self.path, clock, files)
        self.writer: InlineWriter | ThreadWriter
        if files is None:
            self.writer = InlineWriter(self.writing, self.notifier)
            self.reader = db
        else:
            self.write_turns = WriteTurns(f"{files.path}.lock")
            sync = None if durability == "safe" else files.sync
            self.writer = ThreadWriter(self.writing, self.notifier, self.write_turns, sync)
            log = f"{self.path}-wal"
            self.notifier.watcher = CommitWatcher(
                log, self.notifier, self.read_data_version, self.find_ready
            )
            self.pool = ThreadPoolExecutor(READERS, "penstock-reader")
            self.readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
            self.open_readers()
            files.remember_identity()
            forks.add(self)

    def open_readers(self) -> None:
        durability = self.capabilities.durability
        self.reader = connect(self.path, durability, cache=8_192)
        for _ in range(READERS):
            self.readers.put(connect(self.path, durability, cache=8_192))

    async def close(self) -> None:
        """Finishes pending work and closes the connections."""
        if self.closed:
            return
        self.closed = True
        if self.notifier.watcher is not None:
            self.notifier.watcher.close()
        await self.writer.close()
        self.notifier.close()
        if self.files is not None:
            self.pool.shutdown()
            for _ in range(READERS):
                self.readers.get().close()
            self.reader.close()
            self.write_turns.close()
        self.writing.db.close()
        self.gone = True

    def leave(self) -> None:
        self.writing.mutex.acquire()
        self.reading.acquire()
        if self.files is not None and not self.gone:
            self.writing.db.close()
            self.reader.close()
            for _ in range(READERS):
                self.readers.get().close()

    def reopen(self) -> None:
        if self.files is not None and not self.gone:
            self.connect_again(self.files)
        self.reading.release()
        self.writing.mutex.release()

    def connect_again(self, files: StoreFiles) -> None:
        try:
            files.check_database()
        except StoreUnusable:
            # Closed connections; every call is refused before it uses one.
            for _ in range(READERS):
                self.readers.put(self.reader)
            return
        self.writing.db = connect(self.path, self.capabilities.durability)
        self.open_readers()
        # The -wal file may be new after reopening; a read creates it.
        read_floor(self.writing.db)
        files.remember_identity()
        if self.notifier.watcher is not None:
            self.notifier.watcher.seen = -1

    def forget(self) -> None:
        """Closes the inherited lock file, or its lock would outlive the process that took it."""
        if self.files is not None and not self.gone:
            self.closed = self.gone = True
            os.close(self.write_turns.file)

    async def write(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write_in(NEXT, work, *args, **kwargs)

    async def write_in(
        self, order: int, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self.refuse_closed()
        return await self.writer.run(order, bind(work, *args, **kwargs))

    async def look(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        return self.look_now(work, *args, **kwargs)

    def look_now(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Reads on the caller's thread; WAL readers never block."""
        self.refuse_closed()
        with self.reading:
            return self.read_on(self.reader, bind(work, *args, **kwargs))

    async def read(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read that may be long in a thread."""
        self.refuse_closed()
        bound = bind(work, *args, **kwargs)
        if self.files is None:
            return self.read_on(self.reader, bound)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, self.read_in_pool, bound)

    def read_data_version(self) -> int:
        """Returns a number that changes with every commit of another connection."""
        with self.reading:
            version: int = self.reader.execute("PRAGMA data_version").fetchone()[0]
        return version

    def find_ready(self, queue_ids: Collection[int]) -> set[int]:
        """Returns the queues that have work."""
        return self.look_now(with_work, queue_ids)

    def refuse_closed(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self.path!r} is closed")
        if self.files is not None:
            self.files.check_identity()

    def refuse_replaced(self) -> None:
        if self.files is not None:
            self.files.check_database()

    def read_in_pool(self, work: Callable[[SqliteTransaction], T]) -> T:
        db = self.readers.get()
        try:
            return self.read_on(db, work)
        finally:
            self.readers.put(db)

    def read_on(self, db: sqlite3.Connection, work: Callable[[SqliteTransaction], T]) -> T:
        """Runs the work on one snapshot."""
        try:
            db.execute("BEGIN")
            try:
                return work(SqliteTransaction(db, self.clock()))
            finally:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate_error(error, self.path, self.files) from error


def bind(work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> Callable[[SqliteTransaction], T]:
    def run(tx: SqliteTransaction) -> T:
        running = work(tx, *args, **kwargs)
        try:
            running.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        running.close()
        raise RuntimeError("a SQLite operation suspended")

    return run


async def with_work(tx: SqliteTransaction, queue_ids: Collection[int]) -> set[int]:
    return {queue_id for queue_id in queue_ids if await tx.one("peek", queue_id=queue_id)}
