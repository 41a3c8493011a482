"""Checks the files of a store: filesystem, permissions, identity and free disk space."""

import errno
import os
import sqlite3
import stat
import time
from contextlib import suppress

from penstock.errors import StoreFull, StoreUnusable

MIN_VERSION = (3, 38, 0)
BALLAST_BYTES = 16 * 1_048_576
RESERVE_BYTES = 16 * 1_048_576
# A body is written to the -wal file and to the database.
WRITE_AMPLIFICATION = 2
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
        # Bytes that may be published before the next look at the disk.
        self.room = 0
        # True after SQLite got an I/O error from one of them.
        self.io_failed = False
        # Absolute, because the process may change its working directory.
        self.database = os.path.abspath(path)
        # (device, inode) of each file the connections have open.
        self.identities: dict[str, tuple[int, int]] = {}
        self.identity_due = 0.0

    def prepare(self) -> None:
        """Creates the file with mode 0600; raises StoreUnusable if it cannot be used."""
        if sqlite3.sqlite_version_info < MIN_VERSION:
            raise StoreUnusable(
                f"SQLite {sqlite3.sqlite_version} is too old; Penstock needs 3.38 or newer"
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
        # Never open an existing file: closing it would drop the POSIX locks SQLite holds on it
        # for other stores of this process, and another process could delete their -wal file.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreUnusable(f"cannot write {self.path!r}: {error.strerror}") from None

    def remember_identity(self) -> None:
        """Records the files' identities; call it while a connection has them open."""
        self.check_database()
        for file in (self.database, f"{self.database}-wal", f"{self.database}-shm"):
            if (identity := identity_of(file)) is not None:
                self.identities[file] = identity

    def check_identity(self) -> None:
        """Checks once a second that no file was removed or replaced."""
        if (now := time.monotonic()) >= self.identity_due:
            for file in self.identities:
                self.check_file(file)
            self.identity_due = now + IDENTITY_CHECK_INTERVAL_S

    def check_database(self) -> None:
        """Runs before each commit is acknowledged: a commit to an unlinked file is lost."""
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
        """Syncs the -wal file; SQLite itself syncs it only at a checkpoint."""
        with suppress(FileNotFoundError):
            file = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def check_room(self, wanted: int) -> None:
        """Stops publishing before the disk is full, so that settling can continue.

        Looks at the disk once a second, or when what was published since may have used the room.
        """
        self.room -= WRITE_AMPLIFICATION * wanted
        if self.room > 0 and time.monotonic() - self.room_checked < 1.0:
            return
        free = self.free_bytes()
        self.room = free - RESERVE_BYTES - WRITE_AMPLIFICATION * wanted
        if self.room < 0:
            raise StoreFull(
                f"less than {RESERVE_BYTES >> 20} MB would be left on the disk of {self.path!r}:"
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
        """Reserves disk space for settling when the disk is full."""
        if os.path.exists(self.ballast) or self.free_bytes() < 2 * BALLAST_BYTES + RESERVE_BYTES:
            return
        file = os.open(self.ballast, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, BALLAST_BYTES)
            else:
                os.pwrite(file, b"\0" * BALLAST_BYTES, 0)
        except OSError:
            os.unlink(self.ballast)
        finally:
            os.close(file)

    def drop_ballast(self) -> bool:
        """Frees the reserved space; True if there was any, so that a retry makes sense."""
        try:
            os.unlink(self.ballast)
        except FileNotFoundError:
            return False
        self.room_checked = 0.0
        return True


def disk_fails(path: str) -> bool:
    """True if the filesystem returns I/O errors.

    Reads the directory: closing the file itself would drop the locks SQLite holds on it.
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
    """Returns (device, inode), or None if there is no such file."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def find_filesystem(directory: str, mounts: str = MOUNTS) -> str:
    """Returns the filesystem type of a directory; empty if unknown."""
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
