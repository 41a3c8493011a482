"""The single writer of a process, and the turns of processes to write.

All pending jobs of a process go into one transaction.
"""

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from penstock.errors import StoreBusy, StoreClosed, StoreError, StoreFull, StoreUnusable
from penstock.store import Clock
from penstock.stores.sqlite.connection import refuse_newer, translate_error
from penstock.stores.sqlite.files import StoreFiles
from penstock.stores.sqlite.notifier import SocketNotifier
from penstock.stores.sqlite.transaction import SqliteTransaction


class WriteTurns:
    """An advisory lock on a file beside the database.

    Without it one process can starve another. It only orders writers: SQLite's own lock keeps
    writes apart, so writing without a turn is slow, never wrong.
    """

    def __init__(self, path: str, acquire_timeout_s: float = 0.25) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.acquire_timeout_s = acquire_timeout_s
        self.mutex = threading.Lock()
        self.granted = threading.Event()
        self.waiter: threading.Thread | None = None
        self.abandoned = False

    def enter(self) -> bool:
        """Returns True with the lock; False after `acquire_timeout_s`, or at once if stuck."""
        with self.mutex:
            if self.waiter is not None:
                return False
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait()
        return True

    def leave(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        # A thread still blocked in flock keeps the file open until the holder releases it.
        with self.mutex:
            if self.waiter is None:
                os.close(self.file)

    def _wait(self) -> bool:
        """Waits in a thread, because flock has no timeout."""
        self.granted.clear()
        self.abandoned = False
        self.waiter = threading.Thread(target=self._block, name="penstock-gate", daemon=True)
        self.waiter.start()
        self.granted.wait(self.acquire_timeout_s)
        with self.mutex:
            if self.granted.is_set():
                self.waiter = None
                return True
            self.abandoned = True
            return False

    def _block(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with self.mutex:
            if self.abandoned:
                fcntl.flock(self.file, fcntl.LOCK_UN)
                self.waiter = None
            else:
                self.granted.set()


P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Callable[Concatenate[SqliteTransaction, P], Coroutine[Any, Any, T]]
MAX_BATCH = 1_000
MAX_SYNC_DELAY_S = 0.5

# Settles before claims, so that a batch frees room first; reclaims last, so that live workers
# have extended their leases.
FIRST, NEXT, LAST = 0, 1, 2


class WriteJob(NamedTuple):
    order: int
    run: Callable[[SqliteTransaction], Any]
    future: "asyncio.Future[Any] | None"


class WriteOutcome(NamedTuple):
    future: "asyncio.Future[Any] | None"
    value: Any
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.future is None or self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class Applier:
    """Runs jobs in one transaction; if one fails, each is retried alone."""

    def __init__(self, db: sqlite3.Connection, path: str, clock: Clock, files: StoreFiles | None):
        self.db = db
        # Guards the connection.
        self.mutex = threading.Lock()
        self.path = path
        self.clock = clock
        self.files = files
        # Seconds that the last commit took.
        self.commit_time = 0.0

    def apply(self, jobs: list[WriteJob]) -> tuple[list[WriteOutcome], set[int]]:
        """Returns the outcomes and the queues to wake."""
        try:
            with self.mutex:
                return self.commit(jobs)
        except (StoreBusy, StoreUnusable) as error:
            # A retry of each job alone would fail the same way.
            return [WriteOutcome(job.future, None, error) for job in jobs], set()
        except StoreFull as error:
            if self.files is not None and self.files.drop_ballast():
                return self.apply(jobs)
            failure: BaseException = error
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure = error
        if len(jobs) == 1:
            return [WriteOutcome(jobs[0].future, None, failure)], set()
        return self.apply_apart(jobs)

    def apply_apart(self, jobs: list[WriteJob]) -> tuple[list[WriteOutcome], set[int]]:
        outcomes: list[WriteOutcome] = []
        woken: set[int] = set()
        for job in jobs:
            outcome, queues = self.apply([job])
            outcomes += outcome
            woken |= queues
        return outcomes, woken

    def commit(self, jobs: list[WriteJob]) -> tuple[list[WriteOutcome], set[int]]:
        try:
            self.db.execute("BEGIN IMMEDIATE")
            refuse_newer(self.db)
            tx = SqliteTransaction(self.db, self.clock())
            outcomes = [WriteOutcome(job.future, job.run(tx)) for job in jobs]
            began = time.monotonic()
            self.db.execute("COMMIT")
            self.commit_time = time.monotonic() - began
        except BaseException as error:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise translate_error(error, self.path, self.files) from error
            raise
        if self.files is not None:
            self.files.check_database()
        return outcomes, tx.woken


class InlineWriter:
    """Writes on the caller's thread, for a store in memory."""

    def __init__(self, applier: Applier, notifier: SocketNotifier) -> None:
        self.applier = applier
        self.notifier = notifier

    async def run(self, order: int, work: Callable[[SqliteTransaction], T]) -> T:
        (outcome,), woken = self.applier.apply([WriteJob(order, work, None)])
        self.notifier.wake(woken)
        if outcome.error is not None:
            raise outcome.error
        value: T = outcome.value
        return value

    async def close(self) -> None:
        """Does nothing: no job is pending."""


class ThreadWriter:
    """Writes on one thread with one connection; callers await the group commit."""

    def __init__(
        self,
        applier: Applier,
        notifier: SocketNotifier,
        write_turns: WriteTurns,
        sync: Callable[[], None] | None = None,
    ) -> None:
        self.applier = applier
        # Durability `fast`: syncs commits later; and when the next sync is due.
        self.sync = sync
        self.sync_at: float | None = None
        self.notifier = notifier
        self.write_turns = write_turns
        self.loop = asyncio.get_running_loop()
        self.inbox: deque[WriteJob] = deque()
        self.alarm: SimpleQueue[None] = SimpleQueue()
        self.asleep = False
        self.stopping = False
        self.jobs: list[WriteJob] = []
        self.broken: StoreError | None = None
        self.thread = threading.Thread(target=self.main, name="penstock-writer", daemon=True)
        self.thread.start()

    async def run(self, order: int, work: Callable[[SqliteTransaction], T]) -> T:
        if self.broken is not None:
            raise self.broken
        if self.stopping:
            raise StoreClosed(f"{self.applier.path!r} is closed")
        future: asyncio.Future[T] = self.loop.create_future()
        self.inbox.append(WriteJob(order, work, future))
        if self.asleep:
            self.asleep = False
            self.alarm.put(None)
        return await future

    async def close(self) -> None:
        self.stopping = True
        self.alarm.put(None)
        await asyncio.to_thread(self.thread.join)

    def main(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised to all waiting and later callers
            self.broken = StoreError(f"{self.applier.path!r}: the writer thread failed: {error!r}")
            jobs = [*self.jobs, *self.inbox]
            outcomes = [WriteOutcome(job.future, None, self.broken) for job in jobs]
            self.loop.call_soon_threadsafe(self.deliver, outcomes, set())

    def work(self) -> None:
        while True:
            if self.inbox:
                self.write()
            elif self.stopping:
                return
            else:
                self.sleep()

    def sleep(self) -> None:
        self.asleep = True
        # A job may have arrived before the flag was set.
        if self.inbox or self.stopping:
            self.asleep = False
            return
        left = None if self.sync_at is None else max(0.0, self.sync_at - time.monotonic())
        try:
            self.alarm.get(timeout=left)
        except Empty:
            self.asleep = False
            self.sync_if_due()

    def sync_if_due(self) -> None:
        if self.sync is not None and self.sync_at is not None and self.sync_at <= time.monotonic():
            self.sync_at = None
            self.sync()

    def write(self) -> None:
        # Take the turn before the inbox: jobs that arrive while waiting join the batch.
        held = self.write_turns.enter()
        try:
            self.jobs = [self.inbox.popleft() for _ in range(min(len(self.inbox), MAX_BATCH))]
            self.jobs.sort(key=order_of)
            outcomes, woken = self.applier.apply(self.jobs)
        finally:
            if held:
                self.write_turns.leave()
        self.jobs = []
        self.loop.call_soon_threadsafe(self.deliver, outcomes, woken)
        if woken:
            self.notifier.ring()
        if self.sync is not None and self.sync_at is None:
            self.sync_at = time.monotonic() + MAX_SYNC_DELAY_S
        self.sync_if_due()

    def deliver(self, outcomes: list[WriteOutcome], woken: set[int]) -> None:
        for outcome in outcomes:
            outcome.deliver()
        self.notifier.wake(woken)


def order_of(job: WriteJob) -> int:
    return job.order
