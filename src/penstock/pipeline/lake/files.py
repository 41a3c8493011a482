"""File storage of a lake: a directory or a bucket."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import NotYet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Beneath the folder of each table.
DELTA_LOG = "_delta_log"


class LakeFiles(Protocol):
    """Stores files by name, relative to the lake."""

    # A path or URL that is valid on every machine.
    where: str
    # True if `hold` is exclusive. Then a file that no manifest names can be removed.
    exclusive: bool

    def hold(self) -> AbstractContextManager[None]: ...

    def read(self, name: str) -> bytes | None: ...

    def write_once(self, name: str, text: bytes) -> bool:
        """Writes a file atomically and durably. Returns False if it exists."""

    def new(self, name: str) -> AbstractContextManager[Path]:
        """Yields a path to write to. The file is made durable at the end if it exists then."""

    def names(self, folder: str = "") -> Iterator[str]:
        """Lists all files in the folder and below."""

    def remove(self, names: Iterable[str]) -> None: ...

    def digest(self, name: str) -> str | None:
        """Returns the SHA-256 of a file, or None if it does not exist."""

    def size(self, name: str) -> int:
        """Returns the size in bytes."""

    def parquet(self, name: str) -> Any:
        """Opens a pyarrow ParquetFile."""

    def frame(self, spark: "SparkSession", names: Sequence[str], schema: Any) -> "DataFrame":
        """Reads Parquet files. Missing columns are null."""

    def save(self, rows: "DataFrame", folder: str) -> list[tuple[str, int]]:
        """Writes new Parquet files, partitioned by day. Returns their names and row counts."""


def is_data(name: str) -> bool:
    """True if the file does not belong to a Delta log."""
    return f"/{DELTA_LOG}/" not in name


def open_files(place: str) -> LakeFiles:
    scheme, mark, rest = place.partition("://")
    if scheme == "s3" and mark:
        from penstock.pipeline.lake.s3 import S3LakeFiles

        return S3LakeFiles(place.rstrip("/"))
    if mark and scheme != "file":
        raise NotYet(f"lake {place!r}: {scheme}:// is not supported; use a directory or s3://")
    from penstock.pipeline.lake.local import LocalLakeFiles

    return LocalLakeFiles(Path(rest if mark else place).absolute())
