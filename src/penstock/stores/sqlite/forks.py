"""Keeps stores whole when their process is copied: no connection is open at that moment.

SQLite remembers in the process which locks it holds, and a copy of the process has the memory but
not the locks: it could write to a log that others have deleted meanwhile.
"""

import os
import threading
import weakref
from typing import Protocol


class ForkableStore(Protocol):
    def leave(self) -> None:
        """Waits until no connection is in use, and closes them."""

    def reopen(self) -> None:
        """The same process goes on."""

    def forget(self) -> None:
        """This is the copy: it has to open a store of its own."""


class ForkGuard:
    """The open stores of the process. `opening` is held while one opens, and during a fork."""

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


# One for the process, as a fork is.
forks = ForkGuard()
