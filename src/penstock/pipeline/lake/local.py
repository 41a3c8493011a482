"""A lake in a local directory, or in a shared one with the same path on every machine."""

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet

from penstock.errors import InvalidInput, InvalidState
from penstock.pipeline.lake.files import DELTA_LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCK = "_lock"
DRAFT = ".draft-"


class LocalLakeFiles:
    exclusive = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Locks the lake. The lock ends with the process."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.root / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise InvalidInput(f"cannot write the lake {self.where!r}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.drop_drafts()
            yield
        except BlockingIOError:
            raise InvalidState(f"lake {self.where!r} is locked by another process") from None
        finally:
            os.close(handle)

    def drop_drafts(self) -> None:
        """Removes drafts of crashed processes."""
        for pattern in (f"{DRAFT}*", f"*/{DRAFT}*", f"*/{DELTA_LOG}/{DRAFT}*"):
            for path in self.root.glob(pattern):
                path.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_once(self, name: str, text: bytes) -> bool:
        path = self.root / name
        try:
            draft = write_draft(path, text)
        except OSError as error:
            raise InvalidInput(f"cannot write the lake {self.where!r}: {error.strerror}") from None
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
            sync(path.parent)
        return True

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        if path.exists():
            sync(path)
            for folder in path.relative_to(self.root).parents:
                sync(self.root / folder)

    def names(self, folder: str = "") -> Iterator[str]:
        for place, _, names in os.walk(self.root / folder):
            for name in names:
                if name != LOCK:
                    yield str((Path(place) / name).relative_to(self.root))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.root / name
            path.unlink(missing_ok=True)
            # The folder may contain other files.
            with suppress(OSError):
                for folder in path.relative_to(self.root).parents[:-1]:
                    (self.root / folder).rmdir()

    def digest(self, name: str) -> str | None:
        try:
            with open(self.root / name, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int:
        return (self.root / name).stat().st_size

    def parquet(self, name: str) -> Any:
        return parquet.ParquetFile(self.root / name)

    def frame(self, spark: "SparkSession", names: Sequence[str], schema: Any) -> "DataFrame":
        return spark.read.schema(schema).parquet(*(f"{self.where}/{name}" for name in names))

    def save(self, rows: "DataFrame", folder: str) -> list[tuple[str, int]]:
        writer = rows.write.mode("overwrite")
        if "day" in rows.columns:
            writer = writer.partitionBy("day")
        writer.parquet(f"{self.where}/{folder}")
        saved = list(self.list_saved(self.root / folder))
        # Spark adds checksum and _SUCCESS files, which other engines fail on.
        self.remove(set(self.names(folder)) - {name for name, _ in saved})
        return saved

    def list_saved(self, folder: Path) -> Iterator[tuple[str, int]]:
        for path in sorted(folder.rglob("*.parquet")):
            if rows := parquet.read_metadata(path).num_rows:
                sync(path)
                sync(path.parent)
                yield str(path.relative_to(self.root)), rows


def write_draft(path: Path, text: bytes) -> Path:
    """Writes a temporary file beside the path, to be linked to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{DRAFT}{uuid.uuid4().hex}")
    with open(draft, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return draft


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
