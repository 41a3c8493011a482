"""Where the files of a lake are kept: in a directory, or in a bucket."""

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
    """By their names, which are relative to the lake."""

    # Opened anywhere, it is the same files.
    where: str
    # Whoever holds them is alone: what no manifest names is nobody's.
    exclusive: bool

    def hold(self) -> AbstractContextManager[None]: ...

    def read(self, name: str) -> bytes | None: ...

    def write_once(self, name: str, text: bytes) -> bool:
        """Whole or not at all, and durable; False if another one is there already."""

    def new(self, name: str) -> AbstractContextManager[Path]:
        """To be written here. If it is still there in the end, it is kept, and durable."""

    def names(self, folder: str = "") -> Iterator[str]:
        """All that are beneath it."""

    def remove(self, names: Iterable[str]) -> None: ...

    def digest(self, name: str) -> str | None:
        """SHA-256; None if it is not there."""

    def size(self, name: str) -> int:
        """In bytes."""

    def parquet(self, name: str) -> Any:
        """A ParquetFile of pyarrow."""

    def frame(self, spark: "SparkSession", names: Sequence[str], schema: Any) -> "DataFrame":
        """Rows of Parquet files. A column that one does not have is null."""

    def save(self, rows: "DataFrame", folder: str) -> list[tuple[str, int]]:
        """As new Parquet files, those of a day apart; their names and how many rows each has."""


def is_data(name: str) -> bool:
    """Not of a Delta log."""
    return f"/{DELTA_LOG}/" not in name


def open_files(place: str) -> LakeFiles:
    scheme, mark, rest = place.partition("://")
    if scheme == "s3" and mark:
        from penstock.pipeline.lake.s3 import S3LakeFiles

        return S3LakeFiles(place.rstrip("/"))
    if mark and scheme != "file":
        raise NotYet(
            f"lake {place!r}: a lake is a directory or in s3://; {scheme}:// is not built yet"
        )
    from penstock.pipeline.lake.local import LocalLakeFiles

    return LocalLakeFiles(Path(rest if mark else place).absolute())
