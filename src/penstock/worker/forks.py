"""Detects forks by handlers, so that the copy does not continue as a worker."""

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    forked: bool


def notice_forks(worker: ForkAware) -> None:
    """Sets `forked` in every forked copy of the process."""
    watched = weakref.ref(worker)

    def mark_forked() -> None:
        if (found := watched()) is not None:
            found.forked = True

    os.register_at_fork(after_in_child=mark_forked)
