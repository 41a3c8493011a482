"""Cuts the power of a store's disk and checks that what was acknowledged is there afterwards.

    ./dev storm power sqlite --cuts 10
    ./dev storm power sqlite-fast
    ./dev storm power bare

The disk is an ext4 file system in a loop image. EXT4_IOC_SHUTDOWN without a flush of its journal
drops what was not synced, as a power cut does; mounting it again is the reboot. It takes root and a
loop device.

The ioctl can race with an fdatasync that is extending a file: a commit in flight on a young file
may be missing although it was synced. So the files are aged before the first cut, and no client
ever closes the store, which would delete its log. An acknowledgement counts if it was read before
the cut: a machine without power gives none. `bare` cuts the power of a plain sqlite3 loop:
where it loses something, so may the others, and it is no fault of Penstock.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft, State
from penstock.model.store_types import Completion
from penstock.store import Store

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
IMAGE_SIZE = 2 << 30
AGING_MESSAGES = 5_000
AGING_BATCH, BATCH = 500, 5
UMOUNT_ATTEMPTS = 50
READ_SIZE = 1 << 16
KINDS = ("sqlite", "sqlite-fast", "bare")


class CannotRun(Exception):
    """This machine cannot cut the power of a disk, for the reason it says."""


class Disk:
    """A file system of its own, that can lose its power."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "image"
        self.folder = directory / "disk"

    def make(self) -> None:
        if os.geteuid() != 0:
            raise CannotRun("mounting a file system takes root")
        self.folder.mkdir()
        self.image.touch()
        os.truncate(self.image, IMAGE_SIZE)
        run("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", str(self.image), str(self.folder))

    def cut(self) -> None:
        file = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(file, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        except OSError as error:
            raise CannotRun(f"the kernel does not shut down an ext4: {error}") from None
        finally:
            os.close(file)

    def unmount(self) -> None:
        """A process that was killed may not be quite gone."""
        for _ in range(UMOUNT_ATTEMPTS):
            if call("umount", str(self.folder)).returncode == 0:
                return
            time.sleep(0.1)  # noqa: TID251 - nothing tells when the kernel has let go
        raise CannotRun("the file system is still in use")

    def reboot(self) -> None:
        self.unmount()
        self.mount()


def call(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True)


def run(*command: str) -> None:
    try:
        done = call(*command)
    except FileNotFoundError:
        raise CannotRun(f"{command[0]} is not installed") from None
    if done.returncode:
        raise CannotRun(f"{' '.join(command)}: {done.stderr.strip()}")


class Acknowledged:
    """What clients were told is stored, and what of it is lost."""

    def __init__(self) -> None:
        self.published: set[int] = set()
        self.completed: set[int] = set()

    def read(self, text: str) -> None:
        """A client that was killed may have left half a line."""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                verb, _, id = line.strip().partition(" ")
                (self.published if verb == "p" else self.completed).add(int(id))

    def lost(self, found: "Acknowledged") -> tuple[int, int]:
        return len(self.published - found.published), len(self.completed - found.completed)


def say(verb: str, id: int) -> None:
    """In one write: a client that is killed says all of it, or nothing."""
    os.write(1, f"{verb} {id}\n".encode())


async def work(url: str, count: int) -> None:
    """Publishes and completes, and says what was acknowledged; for ever, or `count` messages."""
    broker = Broker(await stores.open(url))
    done, batch = 0, AGING_BATCH if count else BATCH
    while not count or done < count:
        for each in await broker.publish_many([Draft(body=b"x" * 300)] * batch):
            say("p", each.id)
        taken = await broker.claim("default", consumer="power", limit=batch - 1, lease=3_600.0)
        await broker.complete_many([Completion(each.id, each.fence) for each in taken.messages])
        for message in taken.messages:
            say("c", message.id)
        done += batch


async def look(url: str) -> None:
    """Says what is stored, and what is completed."""
    store = await stores.open(url)
    for check in await store.examine():
        if check.name == "integrity" and not check.ok:
            raise SystemExit(f"the file is damaged: {check.text}")
    await say_stored(store)


async def say_stored(store: Store) -> None:
    broker, before = Broker(store), None
    while page := await broker.admin.find("default", before=before, limit=1_000):
        for record in page:
            say("p", record.message.id)
            if record.state is State.COMPLETED:
                say("c", record.message.id)
        before = page[-1].message.id


def work_bare(path: str, count: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
    done = 0
    while not count or done < count // AGING_BATCH:
        say("p", db.execute("INSERT INTO t (body) VALUES (?)", (b"x" * 300,)).lastrowid or 0)
        done += 1


def look_bare(path: str) -> None:
    for (id,) in sqlite3.connect(path).execute("SELECT id FROM t"):
        say("p", id)


def play(part: str, url: str, count: int) -> None:
    """A client process; it never closes the store."""
    path = url.removeprefix("bare:")
    if path != url:
        look_bare(path) if part == "look" else work_bare(path, count)
    else:
        asyncio.run(look(url) if part == "look" else work(url, count))
    os._exit(0)


def client(part: str, url: str, count: int = 0) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", __spec__.name, part, url, str(count)]
    # One without an end meets the cut, and would say so at length.
    errors = None if count or part == "look" else subprocess.DEVNULL
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def finish(client: "subprocess.Popen[str]") -> str:
    text, _ = client.communicate()
    if client.returncode:
        raise SystemExit(f"a client ended with {client.returncode}")
    return text


class Trial:
    def __init__(self, disk: Disk, url: str) -> None:
        self.disk = disk
        self.url = url
        self.acknowledged = Acknowledged()

    def age(self) -> None:
        self.acknowledged.read(finish(client("work", self.url, AGING_MESSAGES)))
        os.sync()

    def cut(self, seconds: float) -> tuple[int, int]:
        """How many publishes and completes are lost."""
        working = client("work", self.url)
        text = read_for(working, seconds)
        self.acknowledged.read(text)
        self.disk.cut()
        working.kill()
        working.communicate()
        self.disk.reboot()
        found = Acknowledged()
        found.read(finish(client("look", self.url)))
        lost = self.acknowledged.lost(found)
        self.acknowledged = found
        return lost


def read_for(working: "subprocess.Popen[str]", seconds: float) -> str:
    """What it says from its first word on, so that it never waits for us to read."""
    assert working.stdout is not None
    file = working.stdout.fileno()
    text = bytearray(os.read(file, READ_SIZE))
    end = time.monotonic() + seconds
    while time.monotonic() < end and working.poll() is None:
        text += os.read(file, READ_SIZE)
    return text.decode()


def url_of(kind: str, disk: Disk) -> str:
    if kind == "bare":
        return f"bare:{disk.folder}/bare.db"
    fast = "?durability=fast" if kind == "sqlite-fast" else ""
    return f"sqlite:///{disk.folder}/queue.db{fast}"


def cut_often(kind: str, cuts: int, seconds: float) -> int:
    """0 if nothing was lost. A store at `fast` may lose its last commits."""
    with tempfile.TemporaryDirectory(prefix="penstock-power-", dir="/var/tmp") as name:
        disk = Disk(Path(name))
        disk.make()
        try:
            lost = cut_each(Trial(disk, url_of(kind, disk)), cuts, seconds)
        finally:
            disk.unmount()
    return int(any(lost) and kind != "sqlite-fast")


def cut_each(trial: Trial, cuts: int, seconds: float) -> tuple[int, int]:
    trial.age()
    total = [0, 0]
    for number in range(1, cuts + 1):
        published, completed = trial.cut(seconds)
        stored = len(trial.acknowledged.published), len(trial.acknowledged.completed)
        print(f"cut {number}: lost {published} publishes, {completed} completes;"
              f" stored {stored[0]}, completed {stored[1]}", flush=True)  # fmt: skip
        total = [total[0] + published, total[1] + completed]
    print(f"{cuts} cuts: lost {total[0]} publishes and {total[1]} completes")
    return total[0], total[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev storm power", description=__doc__)
    parser.add_argument("store", choices=KINDS)
    parser.add_argument("--cuts", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="work before each cut")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return cut_often(asked.store, asked.cuts, asked.seconds)
    except CannotRun as error:
        print(f"no power can be cut here: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    if sys.argv[1:2] in (["work"], ["look"]):
        play(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.exit(main())
