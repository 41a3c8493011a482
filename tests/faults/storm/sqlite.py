"""What is particular to a storm on SQLite: its locks, and the tables of its places."""

import os
import signal
import sqlite3
from collections import defaultdict
from pathlib import Path

from penstock.stores.sqlite.gate import Gate
from tests.faults.storm.scene import Scene

FILE = "storm.db"
# In the index of the write-ahead log, the byte that whoever writes has locked.
WRITE_LOCK = 120
PLACES = ("ready", "scheduled", "lease", "dead")


def url(directory: Path) -> str:
    return f"sqlite:///{directory / FILE}"


def path(scene: Scene) -> str:
    return str(scene.directory / FILE)


def connection(scene: Scene) -> sqlite3.Connection:
    """As an application has one of its own."""
    return sqlite3.connect(path(scene), timeout=5.0)


def hold_gate(scene: Scene) -> None:
    """Stops with the gate in its hand."""
    gate = Gate(f"{path(scene)}.lock", patience=30.0)
    gate.enter()
    os.kill(os.getpid(), signal.SIGSTOP)
    gate.leave()


def hold_transaction(scene: Scene) -> None:
    """Stops in the middle of a write that nobody must ever see."""
    db = connection(scene)
    db.execute("PRAGMA busy_timeout = 30000")
    db.execute("BEGIN IMMEDIATE")
    db.execute("DELETE FROM ready")
    os.kill(os.getpid(), signal.SIGSTOP)
    db.rollback()
    db.close()


def holds_gate(scene: Scene, pid: int) -> bool:
    return any(kind == "FLOCK" for kind, _, _ in locks(pid, f"{path(scene)}.lock"))


def writes(scene: Scene, pid: int) -> bool:
    """It is inside a write transaction: stopped there, it stops every writer."""
    held = locks(pid, f"{path(scene)}-shm")
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


def places(scene: Scene) -> dict[int, tuple[str, ...]]:
    """The tables that hold each ticket."""
    found: dict[int, list[str]] = defaultdict(list)
    db = sqlite3.connect(path(scene))
    for place in PLACES:
        for (id,) in db.execute(f"SELECT id FROM {place}"):
            found[id].append(place)
    db.close()
    return {id: tuple(tables) for id, tables in found.items()}


def damages(scene: Scene) -> list[str]:
    """What SQLite finds wrong with its own file."""
    db = sqlite3.connect(path(scene))
    texts = [str(text) for (text,) in db.execute("PRAGMA integrity_check")]
    db.close()
    return [] if texts == ["ok"] else texts
