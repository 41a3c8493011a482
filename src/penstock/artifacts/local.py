"""Artifacts in a local directory: STORE/TENANT/ID/FENCE/NAME.

Other users may be able to write there, so every directory is opened relative to its parent and no
link is followed.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.artifacts.rules import Artifact, DeliveryPrefix, MessagePrefix
from penstock.artifacts.storage import ArtifactContent
from penstock.errors import StoreError, StoreFull, StoreUnusable
from penstock.retry_policies import UPLOAD, Retries
from penstock.rules.validation import clip
from penstock.store import Check

UPLOADS = ".uploads"
CHUNK_BYTES = 262_144
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for a writer.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


class SuppressErrno:
    """Suppresses errors with the given numbers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, OSError) and error.errno in self.numbers


# A link in place of a file or directory counts as missing.
absent = SuppressErrno(errno.ENOENT, errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
# A directory that is no longer empty stays.
occupied = SuppressErrno(errno.ENOTEMPTY, errno.EEXIST)


class LocalArtifactStorage:
    def __init__(self, root: Path, store: str) -> None:
        self.root = root
        self.store = store

    def begin(self) -> tuple[int, Path]:
        name = secrets.token_hex(16)
        with translate_errors(self.root), self.step(UPLOADS, make=True) as directory:
            number = os.open(name, CREATE_FLAGS, 0o600, dir_fd=directory)
        return number, self.root / self.store / UPLOADS / name

    def keep(self, upload: Path, delivery_folder: DeliveryPrefix, name: str) -> None:
        retries: Retries | None = None
        while retries is None or retries.again_at_once():
            retries = retries or UPLOAD.begin()
            with translate_errors(self.root), suppress(FileNotFoundError):
                with (
                    self.step(*path_parts(delivery_folder), make=True) as to,
                    self.step(UPLOADS) as uploads,
                ):
                    os.rename(upload.name, name, src_dir_fd=uploads, dst_dir_fd=to)
                    os.fsync(to)
                return
        raise StoreError(
            f"artifact {clip(name)} of message {delivery_folder.id} was removed during the upload"
        )

    def files(self, delivery_folder: DeliveryPrefix) -> list[Artifact]:
        with (
            translate_errors(self.root),
            absent,
            self.step(*path_parts(delivery_folder)) as directory,
        ):
            return sorted(list_regular_files(directory), key=lambda each: each.name)
        return []

    def open(self, delivery_folder: DeliveryPrefix, name: str) -> ArtifactContent | None:
        with (
            translate_errors(self.root),
            absent,
            self.step(*path_parts(delivery_folder)) as directory,
        ):
            number = os.open(name, FILE, dir_fd=directory)
            found = os.fstat(number)
            if is_own(found):
                file = os.fdopen(number, "rb", buffering=0)
                return ArtifactContent(
                    found.st_size, iter(lambda: file.read(CHUNK_BYTES), b""), file.close
                )
            os.close(number)
        return None

    def remove(self, delivery_folder: DeliveryPrefix, name: str) -> None:
        with (
            translate_errors(self.root),
            absent,
            self.step(*path_parts(delivery_folder)) as directory,
        ):
            os.unlink(name, dir_fd=directory)

    def clear(self, delivery_folder: DeliveryPrefix) -> None:
        tenant, id, fence = path_parts(delivery_folder)
        with translate_errors(self.root), absent:
            with self.step(tenant, id) as above:
                remove_tree(above, fence)
            with self.step(tenant) as above, occupied:
                os.rmdir(id, dir_fd=above)

    def owners(self, after: MessagePrefix | None, limit: int) -> list[MessagePrefix]:
        last = ("", "") if after is None else (after.tenant, str(after.id))
        found = [
            (tenant, id)
            for tenant in self.names()
            if not tenant.startswith(".")
            for id in self.names(tenant)
            if is_number(id)
        ]
        chosen = sorted(each for each in found if each > last)[:limit]
        return [MessagePrefix(tenant, int(id)) for tenant, id in chosen]

    def delivery_folders(self, owner: MessagePrefix) -> list[DeliveryPrefix]:
        names = self.names(owner.tenant, str(owner.id))
        return [
            DeliveryPrefix(owner.tenant, owner.id, int(name)) for name in names if is_number(name)
        ]

    def names(self, *parts: str) -> list[str]:
        with translate_errors(self.root), absent, self.step(*parts) as directory:
            return os.listdir(directory)
        return []

    def tidy(self, age: float) -> int:
        count = 0
        with translate_errors(self.root), absent, self.step(UPLOADS) as directory:
            for name in os.listdir(directory):
                with absent:
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if found.st_mtime < time.time() - age:
                        os.unlink(name, dir_fd=directory)
                        count += 1
        return count

    def examine(self) -> Check:
        where = str(self.root)
        if not self.root.exists():
            return Check("artifacts", f"{where}, created with the first file")
        well = self.root.is_dir() and os.access(where, os.R_OK | os.W_OK | os.X_OK)
        return Check("artifacts", where if well else f"{where} is not writable", well)

    @contextmanager
    def step(self, *parts: str, make: bool = False) -> Iterator[int]:
        """Opens a directory below the store's, one level at a time."""
        if make:
            os.makedirs(self.root, 0o700, exist_ok=True)
        number = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in (self.store, *parts):
                number = step_into(number, part, make)
            yield number
        finally:
            os.close(number)


def step_into(above: int, name: str, make: bool) -> int:
    """Opens a subdirectory and closes its parent."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
            os.fsync(above)
    number = os.open(name, DIRECTORY, dir_fd=above)
    os.close(above)
    return number


def path_parts(delivery_folder: DeliveryPrefix) -> tuple[str, str, str]:
    return delivery_folder.tenant, str(delivery_folder.id), str(delivery_folder.fence)


def is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def is_own(found: os.stat_result) -> bool:
    """True for a regular file without hard links, which may belong to another user."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def list_regular_files(directory: int) -> Iterator[Artifact]:
    with os.scandir(directory) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if is_own(found) and not entry.name.startswith("."):
                yield Artifact(entry.name, found.st_size)


def remove_tree(above: int, name: str) -> None:
    """Removes a directory and its files."""
    directory = os.open(name, DIRECTORY, dir_fd=above)
    try:
        for each in os.listdir(directory):
            with suppress(FileNotFoundError):
                os.unlink(each, dir_fd=directory)
    finally:
        os.close(directory)
    with occupied:
        os.rmdir(name, dir_fd=above)


@contextmanager
def translate_errors(root: Path) -> Iterator[None]:
    """Raises disk errors as store errors."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = StoreFull if error.errno in DISK_FULL_ERRORS else StoreUnusable
        raise kind(f"artifacts in {str(root)!r}: {error.strerror}") from None
