"""A lake in an S3-compatible bucket."""

import hashlib
import io
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as parquet

from penstock.artifacts.s3 import CHUNK_BYTES, PAGE_SIZE, connect, translate_errors

if TYPE_CHECKING:
    from obstore import GetResult
    from pyspark.sql import DataFrame, SparkSession

# A missing object has another code.
NO_BUCKET = "NoSuchBucket"


class S3LakeFiles:
    """Has no lock. If two processes write the same name, the second write fails."""

    exclusive = False

    def __init__(self, url: str) -> None:
        self.where = url
        self.objects = connect(url, "lakes")

    def translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(f"lake {self.where!r}")

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def get_object(self, name: str) -> "GetResult | None":
        import obstore

        try:
            return obstore.get(self.objects, name)
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise
            return None

    def read(self, name: str) -> bytes | None:
        with self.translate_errors():
            found = self.get_object(name)
            return None if found is None else bytes(found.bytes())

    def write_once(self, name: str, text: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self.translate_errors():
            try:
                obstore.put(self.objects, name, text, mode="create")
            except AlreadyExistsError:
                # Our own write, if its response was lost and it was retried.
                return self.read(name) == text
        return True

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        import obstore

        with tempfile.TemporaryDirectory(prefix="penstock-lake-") as folder:
            path = Path(folder) / "new"
            yield path
            if path.exists():
                with self.translate_errors():
                    obstore.put(self.objects, name, path)

    def names(self, folder: str = "") -> Iterator[str]:
        import obstore

        with self.translate_errors():
            for page in obstore.list(self.objects, folder, chunk_size=PAGE_SIZE):
                for each in page:
                    yield each["path"]

    def remove(self, names: Iterable[str]) -> None:
        import obstore

        if paths := list(names):
            with self.translate_errors():
                obstore.delete(self.objects, paths)

    def digest(self, name: str) -> str | None:
        digest = hashlib.sha256()
        with self.translate_errors():
            found = self.get_object(name)
            if found is None:
                return None
            for piece in found.stream(CHUNK_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def size(self, name: str) -> int:
        import obstore

        with self.translate_errors(), suppress(FileNotFoundError):
            return obstore.head(self.objects, name)["size"]
        raise FileNotFoundError(f"{self.where}/{name} does not exist")

    def parquet(self, name: str) -> Any:
        return parquet.ParquetFile(S3File(self, name), pre_buffer=True)

    def frame(self, spark: "SparkSession", names: Sequence[str], schema: Any) -> "DataFrame":
        from penstock.pipeline.lake.s3_source import register_format

        listed = msgspec.json.encode(list(names)).decode()
        reader = spark.read.format(register_format(spark)).schema(schema)
        return reader.options(lake=self.where, names=listed).load()

    def save(self, rows: "DataFrame", folder: str) -> list[tuple[str, int]]:
        """A repeated task writes its files again, so the driver reports which ones count."""
        from penstock.pipeline.lake.s3_source import register_format

        report = f"_saved-{uuid.uuid4().hex}.json"
        writer = rows.write.format(register_format(rows.sparkSession)).mode("append")
        try:
            writer.options(lake=self.where, folder=folder, report=report).save()
            saved = msgspec.json.decode(self.read(report) or b"", type=list[tuple[str, int]])
        finally:
            self.remove([report])
        return sorted(saved)


class S3File(io.RawIOBase):
    """A seekable file over an object. Each read is one range request."""

    def __init__(self, bucket: S3LakeFiles, name: str) -> None:
        self.bucket = bucket
        self.name = name
        self.at = 0
        self.length = bucket.size(name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.length}[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        import obstore

        size = min(len(buffer), self.length - self.at)
        if size <= 0:
            return 0
        with self.bucket.translate_errors():
            piece = obstore.get_range(self.bucket.objects, self.name, start=self.at, length=size)
        buffer[:size] = memoryview(piece)
        self.at += size
        return size
