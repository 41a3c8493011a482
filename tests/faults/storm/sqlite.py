"""What is particular to the processes of a storm on SQLite: whose locks they hold, and how."""

import os
import signal
import sqlite3
from pathlib import Path

from penstock.stores.sqlite.writer import WriteTurns
from tests.faults.storm.scene import Scene

FILE = "storm.db"
# In the index of the write-ahead log, the byte that whoever writes has locked.
WRITE_LOCK = 120


def path(directory: Path) -> str:
    return str(directory / FILE)


def connection(scene: Scene) -> sqlite3.Connection:
    """As an application has one of its own."""
    return sqlite3.connect(path(scene.directory), timeout=5.0)


def hold_gate(scene: Scene, name: str) -> None:
    """Stops with the gate in its hand."""
    gate = WriteTurns(f"{path(scene.directory)}.lock", acquire_timeout_s=30.0)
    gate.enter()
    os.kill(os.getpid(), signal.SIGSTOP)
    gate.leave()


def hold_transaction(scene: Scene, name: str) -> None:
    """Stops in the middle of a write that nobody must ever see."""
    db = connection(scene)
    db.execute("PRAGMA busy_timeout = 30000")
    db.execute("BEGIN IMMEDIATE")
    db.execute("DELETE FROM penstock_ready")
    os.kill(os.getpid(), signal.SIGSTOP)
    db.rollback()
    db.close()


def holds_gate(file: str, pid: int) -> bool:
    return any(kind == "FLOCK" for kind, _, _ in locks(pid, f"{file}.lock"))


def writes(file: str, pid: int) -> bool:
    """It is inside a write transaction: stopped there, it stops every writer."""
    held = locks(pid, f"{file}-shm")
    return any(first <= WRITE_LOCK <= last for _, first, last in held)


def locks(pid: int, file: str) -> list[tuple[str, int, int]]:
    """The exclusive locks of a process on a file: their kind, first and last byte."""
    found: list[tuple[str, int, int]] = []
    try:
        inode = str(os.stat(file).st_ino)
    except FileNotFoundError:
        # The log and its index go with the last who closes the store.
        return found
    for line in Path("/proc/locks").read_text().splitlines():
        # A line with an arrow is of one who waits.
        _, kind, _, mode, owner, place, first, last = line.replace("->", "").split()
        holder = (owner, place.rpartition(":")[2], mode)
        if "->" not in line and holder == (str(pid), inode, "WRITE"):
            found.append((kind, int(first), 2**62 if last == "EOF" else int(last)))
    return found
