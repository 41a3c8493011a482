"""The processes at work in a directory, and how they are ended."""

import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

CAP = 30.0


def at_work_in(directory: Path) -> Iterator[int]:
    """Database servers make their data directory their own, and so do all their children."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "cwd") == str(directory):
                yield int(process.name)


def title(pid: int) -> str:
    """What the process calls itself; nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def end(number: signal.Signals, pids: Iterable[int], cap: float = CAP) -> bool:
    """Whether all of them have ended."""
    handles = []
    for pid in pids:
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    for handle in handles:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
    ended = [bool(select.select([handle], [], [], cap)[0]) for handle in handles]
    for handle in handles:
        os.close(handle)
    return all(ended)


def kill(*pids: int) -> None:
    """Returns when all of them have ended."""
    assert end(signal.SIGKILL, pids), f"one of {pids} survives"


def kill_all_in(directory: Path) -> None:
    """Also those that are born meanwhile."""
    while pids := list(at_work_in(directory)):
        kill(*pids)
