"""Runs coroutines for sync callers on a background event loop. Safe after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import InvalidState

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Portal:
    def __init__(self) -> None:
        # Keyed by process id: a forked child must not inherit a lock that a thread of its parent
        # held.
        self.locks: dict[int, threading.Lock] = {}
        self.loops: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on the background loop and waits for it."""
        if is_loop_running():
            work.close()
            raise InvalidState(
                "this call would block the running event loop; await its async variant instead"
                " (aenqueue, apublish, aresult, astatus, acancel, asetup, aclose ...)"
            )
        import asyncio

        future = asyncio.run_coroutine_threadsafe(work, self.ensure_loop())
        try:
            return future.result()
        finally:
            # Cancels the work if this wait was interrupted.
            future.cancel()

    def ensure_loop(self) -> asyncio.AbstractEventLoop:
        here = os.getpid()
        with self.locks.setdefault(here, threading.Lock()):
            if here not in self.loops:
                self.loops[here] = start()
            return self.loops[here][0]

    @property
    def open(self) -> bool:
        return os.getpid() in self.loops

    def close(self) -> None:
        here = os.getpid()
        with self.locks.setdefault(here, threading.Lock()):
            found = self.loops.pop(here, None)
        if found is not None:
            loop, thread = found
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def is_loop_running() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def start() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Starts a loop in a daemon thread. Its tasks are cancelled when it stops."""
    import asyncio
    from concurrent.futures import Future

    started: Future[asyncio.AbstractEventLoop] = Future()

    def main() -> None:
        with asyncio.Runner() as runner:
            started.set_result(runner.get_loop())
            runner.get_loop().run_forever()

    thread = threading.Thread(target=main, name="penstock-portal", daemon=True)
    thread.start()
    return started.result(), thread
