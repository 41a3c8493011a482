"""Where a server of a test may live: which directory, which port, which user."""

import os
import pwd
import random
import shutil
import socket
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2**30
# Below the ports the kernel gives to clients: one of them could take the port while its server is
# down, and even connect to itself.
PORTS = range(20_000, 32_000)


def new_directory(parent: Path | None, owner: str | None) -> Path:
    """Fresh; in memory unless a parent is given, where thousands of commits wait for no disk."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-", dir=parent or memory()))
    if owner is not None:
        shutil.chown(directory, owner)
    return directory


def memory() -> Path | None:
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else None


def free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        if bindable(port):
            return port
    raise OSError("no free port")


def bindable(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def server_user(name: str) -> str | None:
    """Database servers refuse to run as root. None: run as who we are."""
    return name if os.geteuid() == 0 and exists(name) else None


def exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
