"""Resource usage of a server: CPU time, log bytes and commits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from tests.servers.server import Server

TICKS = os.sysconf("SC_CLK_TCK")


class Usage(Struct, frozen=True):
    """CPU seconds, log bytes and commits, since the start of the server or of a measurement."""

    seconds: float
    wal: float
    commits: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(
            self.seconds - before.seconds, self.wal - before.wal, self.commits - before.commits
        )


def read_server_seconds(first: int) -> float:
    """Returns the CPU seconds of a server and its children, including ended ones."""
    alive = sum(read_own_ticks(pid) for pid in [first, *list_children(first)])
    ended = sum(read_ticks(first)[2:])
    return (alive + ended) / TICKS


def read_own_ticks(pid: int) -> int:
    try:
        return sum(read_ticks(pid)[:2])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def read_ticks(pid: int) -> list[int]:
    """Returns utime, stime, cutime and cstime, see proc(5)."""
    return [int(word) for word in read_fields(pid)[11:15]]


def list_children(pid: int) -> Iterator[int]:
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(read_fields(int(directory.name))[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            yield int(directory.name)


def read_fields(pid: int) -> list[str]:
    """Returns the fields from the state on, because the name before it may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@contextmanager
def use_one_core(server: Server) -> Iterator[None]:
    """Pins the server, this process and its children to one core."""
    own = os.sched_getaffinity(0)
    pids = [0, *server.processes]
    try:
        pin(pids, {min(own)})
        yield
    finally:
        pin([0, *server.processes], own)


def pin(pids: list[int], cores: set[int]) -> None:
    for pid in pids:
        # A backend may have just ended.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)
