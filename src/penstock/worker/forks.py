"""Notices when a handler copies the process: the copy must not go on as a worker."""

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    forked: bool


def notice_forks(worker: ForkAware) -> None:
    """Sets `forked` in the copy, for as long as the worker lives."""
    watched = weakref.ref(worker)

    def forked() -> None:
        if (found := watched()) is not None:
            found.forked = True

    os.register_at_fork(after_in_child=forked)
