"""The files of a store: where it may lie, who may read it, whether they are still there, and
room on its disk."""

import errno
import os
import sqlite3
import stat
import time
from contextlib import suppress

from penstock.errors import StoreFull, StoreUnusable

OLDEST = (3, 38, 0)
BALLAST = 16 * 1_048_576
LOW_WATER = 16 * 1_048_576
IDENTITY_CHECK_INTERVAL_S = 1.0
DISK_ERRORS = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESHUTDOWN)
MOUNTS = "/proc/self/mountinfo"
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "glusterfs", "lustre",
    "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph",
})  # fmt: skip


class StoreFiles:
    def __init__(self, path: str, mounts: str = MOUNTS) -> None:
        self.path = path
        self.mounts = mounts
        self.ballast = f"{path}.ballast"
        self.room_checked = 0.0
        # SQLite got an I/O error from one of them.
        self.io_failed = False
        # Absolute, as SQLite keeps it: the process may change its directory.
        self.database = os.path.abspath(path)
        # Device and inode of each file that the connections have open.
        self.identities: dict[str, tuple[int, int]] = {}
        self.identity_due = 0.0

    def prepare(self) -> None:
        """Makes the file, readable by its owner only, or says why it cannot be used here."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreUnusable(
                f"SQLite {sqlite3.sqlite_version} is too old; penstock needs 3.38 or newer"
            )
        directory = os.path.dirname(self.path) or "."
        if not os.path.isdir(directory):
            raise StoreUnusable(f"no directory {directory!r} for {self.path!r}; create it first")
        kind = find_filesystem(directory, self.mounts)
        if kind in NETWORK:
            raise StoreUnusable(
                f"{self.path!r} is on a network filesystem ({kind}), where SQLite's locks are"
                " unreliable; use a local disk, or PostgreSQL for many machines"
            )
        self.create()
        if not stat.S_ISREG(os.stat(self.path).st_mode):
            raise StoreUnusable(f"{self.path!r} is not a regular file")
        if not os.access(self.path, os.R_OK | os.W_OK):
            raise StoreUnusable(f"cannot write {self.path!r}: Permission denied")

    def create(self) -> None:
        # A file that exists is not opened: closing it would drop the locks that SQLite holds on
        # it for other stores of this process, and another process would delete their log.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreUnusable(f"cannot write {self.path!r}: {error.strerror}") from None

    def remember_identity(self) -> None:
        """Call it while a connection has all of them open; the database stays the same one."""
        self.check_database()
        for file in (self.database, f"{self.database}-wal", f"{self.database}-shm"):
            if (identity := identity_of(file)) is not None:
                self.identities[file] = identity

    def check_identity(self) -> None:
        """Looks once a second whether any of them was removed or replaced."""
        if (now := time.monotonic()) >= self.identity_due:
            for file in self.identities:
                self.check_file(file)
            self.identity_due = now + IDENTITY_CHECK_INTERVAL_S

    def check_database(self) -> None:
        """For every commit: what was written to a file without a name must not be acknowledged."""
        self.check_file(self.database)

    def check_file(self, file: str) -> None:
        known = self.identities.get(file)
        if known is not None and identity_of(file) != known:
            self.identity_due = 0.0
            raise StoreUnusable(
                f"{file!r} was removed or replaced while it was open; nothing is accepted until"
                " you put it back, or restart this process to use the current files"
            )

    def sync(self) -> None:
        """Makes the commits so far durable; SQLite itself syncs them only at a checkpoint."""
        with suppress(FileNotFoundError):
            file = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def check_room(self) -> None:
        """Publishing stops before the disk is full, so that settling can go on."""
        if time.monotonic() - self.room_checked < 1.0:
            return
        if self.free_bytes() < LOW_WATER:
            raise StoreFull(
                f"less than {LOW_WATER >> 20} MB left on the disk of {self.path!r}:"
                " publishing is stopped, settling continues; free some space"
            )
        self.room_checked = time.monotonic()
        self.load_ballast()

    def free_bytes(self) -> int:
        try:
            disk = os.statvfs(os.path.dirname(self.path) or ".")
        except OSError as error:
            raise StoreUnusable(f"the directory of {self.path!r} is gone: {error}") from None
        return disk.f_bavail * disk.f_frsize

    def load_ballast(self) -> None:
        """Room kept back for settling when the disk is full."""
        if os.path.exists(self.ballast) or self.free_bytes() < 2 * BALLAST + LOW_WATER:
            return
        file = os.open(self.ballast, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, BALLAST)
            else:
                os.pwrite(file, b"\0" * BALLAST, 0)
        except OSError:
            os.unlink(self.ballast)
        finally:
            os.close(file)

    def drop_ballast(self) -> bool:
        """True if there was some, so that trying again makes sense."""
        try:
            os.unlink(self.ballast)
        except FileNotFoundError:
            return False
        self.room_checked = 0.0
        return True


def disk_fails(path: str) -> bool:
    """Whether the file system answers with I/O errors.

    Asks its folder: closing the file itself would drop the locks that SQLite holds on it.
    """
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        return error.errno in DISK_ERRORS
    return False


def identity_of(file: str) -> tuple[int, int] | None:
    """None if there is no such file."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def find_filesystem(directory: str, mounts: str = MOUNTS) -> str:
    """The type of the filesystem a directory lies on; empty where it cannot be told."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8") as table:
            lines = table.readlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return ""
