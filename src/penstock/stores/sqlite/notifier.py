"""Wakes the consumers that wait for work, in this process and in others."""

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Collection, Iterator

from penstock.stores.notifier import Waiters

IN_ACCESS, IN_NONBLOCK, IN_CLOEXEC = 0x1, 0x800, 0x80000
WATCH = struct.calcsize("iIII")


class SocketNotifier(Waiters):
    """Notifies other processes by reading one byte of a file that they watch with inotify.

    A read triggers inotify without disk I/O. Without inotify, consumers poll.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self.file = -1
        self.path = path
        # None until the first wait: most commands wait for nothing, and closing it takes long.
        self.watch: int | None = None if path else -1
        self.loop: asyncio.AbstractEventLoop | None = None
        # Finds commits that are not announced, such as those of callers' transactions.
        self.watcher: CommitWatcher | None = None
        if path is not None:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self.file, b"!", 0)

    @property
    def longest_wait(self) -> float:
        """The longest time a waiter sleeps before it polls, in seconds."""
        return 1.0 if self.file < 0 or self.begin_watch() >= 0 else 0.02

    def ring(self) -> None:
        """Notifies the other processes."""
        if self.file >= 0:
            os.pread(self.file, 1, 0)

    def wait(self, queue_ids: Collection[int]) -> "asyncio.Future[None]":
        """Returns a future that ends when one of the queues may have work."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop and (watch := self.begin_watch()) >= 0:
            self.loop = loop
            loop.add_reader(watch, self._handle_wakeup)
        return super().wait(queue_ids)

    def begin_watch(self) -> int:
        """Opens the watch when it is first needed."""
        if self.watch is None:
            self.watch = -1 if self.path is None else open_watch(self.path)
        return self.watch

    def listen(self) -> None:
        if self.watcher is not None:
            self.watcher.begin()

    def close(self) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self.begin_watch())
        self.wake(None)
        for file in (self.file, self.watch):
            if file is not None and file >= 0:
                os.close(file)
        self.file = self.watch = -1

    def _handle_wakeup(self) -> None:
        try:
            os.read(self.begin_watch(), 64 * WATCH)
        except BlockingIOError:
            return
        self.wake(None)


def open_watch(path: str) -> int:
    """Returns a descriptor that is readable after a read of `path`; -1 without inotify."""
    if sys.platform != "linux":
        return -1
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    if descriptor < 0:
        return -1
    if libc.inotify_add_watch(descriptor, os.fsencode(path), IN_ACCESS) < 0:
        os.close(descriptor)
        return -1
    return descriptor


IN_MODIFY, IN_ONESHOT = 0x2, 0x80000000
# A commit reaches the -wal file before it is visible, so check again after these delays.
CHECK_DELAYS_S = (0.0003, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)


class CommitWatcher:
    """Checks for work after a write to the -wal file, while there are waiters.

    Without inotify, consumers poll.
    """

    def __init__(
        self,
        log: str,
        notifier: SocketNotifier,
        version: Callable[[], int],
        ready: Callable[[Collection[int]], set[int]],
    ) -> None:
        self.log = os.fsencode(log)
        self.notifier = notifier
        self.version = version
        self.ready = ready
        self.seen = -1
        self.armed = False
        self.timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.libc: ctypes.CDLL | None = None
        # None until there is a waiter.
        self.file: int | None = None

    def open(self) -> int:
        if sys.platform != "linux":
            return -1
        self.libc = ctypes.CDLL(None)
        descriptor: int = self.libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        return descriptor

    def begin(self) -> None:
        """Starts watching when the first waiter arrives."""
        if self.file is None:
            self.file = self.open()
        if self.file < 0 or self.armed or self.timer is not None:
            return
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
            self.loop.add_reader(self.file, self.handle_change)
        self.watch_next_commit()

    def watch_next_commit(self) -> None:
        """Watches before it checks, so that nothing in between is missed."""
        if self.libc is not None:
            mask = IN_MODIFY | IN_ONESHOT
            self.armed = self.libc.inotify_add_watch(self.file, self.log, mask) >= 0
        self.look()

    def look(self) -> bool:
        """Returns True if anything was committed since the last call."""
        version = self.version()
        if version == self.seen:
            return False
        self.seen = version
        self.notifier.wake(self.ready(self.notifier.wanted))
        return True

    def handle_change(self) -> None:
        assert self.file is not None
        os.read(self.file, 4_096)
        if self.armed:
            self.armed = False
            self.poll_again(iter(CHECK_DELAYS_S))

    def poll_again(self, steps: Iterator[float]) -> None:
        self.timer = None
        if not self.notifier.waiting:
            return
        if self.look() or (step := next(steps, None)) is None:
            self.watch_next_commit()
        elif self.loop is not None:
            self.timer = self.loop.call_later(step, self.poll_again, steps)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.file is not None and self.file >= 0:
            if self.loop is not None and not self.loop.is_closed():
                self.loop.remove_reader(self.file)
            os.close(self.file)
        self.file = -1
