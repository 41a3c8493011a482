"""Closes all connections around a fork.

SQLite remembers in process memory which locks it holds. A forked child has the memory but not the
locks, and could write to a -wal file that others have deleted.
"""

import os
import threading
import weakref
from typing import Protocol


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
