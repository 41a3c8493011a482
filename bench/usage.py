"""What a server used: processor time, log and commits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from tests.servers.server import Server

TICKS = os.sysconf("SC_CLK_TCK")


class Usage(Struct, frozen=True):
    """Seconds of processor, bytes of log, commits: since the server began, or in between."""

    seconds: float
    wal: float
    commits: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(
            self.seconds - before.seconds, self.wal - before.wal, self.commits - before.commits
        )


def server_seconds(first: int) -> float:
    """Of the first process of a server and its children, those that ended too."""
    alive = sum(own_ticks(pid) for pid in [first, *children(first)])
    ended = sum(ticks(first)[2:])
    return (alive + ended) / TICKS


def own_ticks(pid: int) -> int:
    try:
        return sum(ticks(pid)[:2])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def ticks(pid: int) -> list[int]:
    """utime, stime, cutime and cstime of proc(5)."""
    return [int(word) for word in fields(pid)[11:15]]


def children(pid: int) -> Iterator[int]:
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(fields(int(directory.name))[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            yield int(directory.name)


def fields(pid: int) -> list[str]:
    """From the state on; the name before it may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@contextmanager
def on_one_core(server: Server) -> Iterator[None]:
    """The server, this process and whatever it starts meanwhile."""
    own = os.sched_getaffinity(0)
    pids = [0, *server.processes]
    try:
        pin(pids, {min(own)})
        yield
    finally:
        pin([0, *server.processes], own)


def pin(pids: list[int], cores: set[int]) -> None:
    for pid in pids:
        # A backend may be going.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)
