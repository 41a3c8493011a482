"""Notices what a caller's own connection committed: it rings no bell."""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable, Collection, Iterator

from penstock.stores.sqlite.bell import IN_CLOEXEC, IN_NONBLOCK, SocketNotifier

IN_MODIFY, IN_ONESHOT = 0x2, 0x80000000
# A commit is written to the log before it can be seen: looked for again after these.
LADDER = (0.0003, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)


class CommitWatcher:
    """While somebody waits, a write to the log makes it look for work; otherwise it costs nothing.

    Where there is no inotify, waits are short instead.
    """

    def __init__(
        self,
        log: str,
        bell: SocketNotifier,
        version: Callable[[], int],
        ready: Callable[[Collection[int]], set[int]],
    ) -> None:
        self.log = os.fsencode(log)
        self.bell = bell
        self.version = version
        self.ready = ready
        self.seen = -1
        self.armed = False
        self.timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self.file = -1
        if self.libc is not None:
            self.file = self.libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)

    def begin(self) -> None:
        """Somebody waits from now on."""
        if self.file < 0 or self.armed or self.timer is not None:
            return
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
            self.loop.add_reader(self.file, self.handle_change)
        self.arm()

    def arm(self) -> None:
        """Listening before looking: what comes in between is not missed."""
        if self.libc is not None:
            mask = IN_MODIFY | IN_ONESHOT
            self.armed = self.libc.inotify_add_watch(self.file, self.log, mask) >= 0
        self.look()

    def look(self) -> bool:
        """True if anything was committed since the last look."""
        version = self.version()
        if version == self.seen:
            return False
        self.seen = version
        self.bell.wake(self.ready(self.bell.wanted))
        return True

    def handle_change(self) -> None:
        os.read(self.file, 4_096)
        if self.armed:
            self.armed = False
            self.poll_again(iter(LADDER))

    def poll_again(self, steps: Iterator[float]) -> None:
        self.timer = None
        if not self.bell.waiting:
            return
        if self.look() or (step := next(steps, None)) is None:
            self.arm()
        elif self.loop is not None:
            self.timer = self.loop.call_later(step, self.poll_again, steps)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self.file)
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
