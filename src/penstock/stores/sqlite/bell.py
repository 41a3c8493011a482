"""Wakes the consumers that wait for work, in this process and in others."""

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Collection

from penstock.stores.waiters import Waiters

IN_ACCESS, IN_NONBLOCK, IN_CLOEXEC = 0x1, 0x800, 0x80000
WATCH = struct.calcsize("iIII")


class SocketNotifier(Waiters):
    """Rung by reading one byte of a file beside the database: inotify tells the other processes.

    A read wakes as well as a write and costs no disk. Where there is no inotify, waits are short.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self.file = self.watch = -1
        self.loop: asyncio.AbstractEventLoop | None = None
        if path is not None:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self.file, b"!", 0)
            self.watch = open_watch(path)

    @property
    def longest_wait(self) -> float:
        """How long a waiter may trust the bell."""
        return 1.0 if self.file < 0 or self.watch >= 0 else 0.02

    def ring(self) -> None:
        """Tells the other processes."""
        if self.file >= 0:
            os.pread(self.file, 1, 0)

    def wait(self, queue_ids: Collection[int]) -> "asyncio.Future[None]":
        """A future that ends when one of the queues may have work."""
        loop = asyncio.get_running_loop()
        if self.watch >= 0 and self.loop is not loop:
            self.loop = loop
            loop.add_reader(self.watch, self._handle_wakeup)
        return super().wait(queue_ids)

    def close(self) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self.watch)
        self.wake(None)
        for file in (self.file, self.watch):
            if file >= 0:
                os.close(file)
        self.file = self.watch = -1

    def _handle_wakeup(self) -> None:
        try:
            os.read(self.watch, 64 * WATCH)
        except BlockingIOError:
            return
        self.wake(None)


def open_watch(path: str) -> int:
    """A file descriptor that is readable when somebody reads `path`; -1 where there is none."""
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
