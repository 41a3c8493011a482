"""Artifact storage in an S3-compatible bucket."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.artifacts.rules import Artifact, DeliveryPrefix, MessagePrefix
from penstock.artifacts.storage import ArtifactContent
from penstock.errors import InvalidInput, StoreUnreachable
from penstock.extras import require_extra
from penstock.store import Check

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

CHUNK_BYTES = 1_048_576
PAGE_SIZE = 1_000
PREFIX = "penstock-upload-"
# Short, because callers wait meanwhile.
RETRY_OPTIONS: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
# The error of the server, without the details of the request.
S3_ERROR = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")


class S3ArtifactStorage:
    def __init__(self, url: str, store: str) -> None:
        self.url = url
        self.store = store
        self.objects = connect(url, "artifacts")

    def begin(self) -> tuple[int, Path]:
        number, name = tempfile.mkstemp(prefix=PREFIX)
        return number, Path(name)

    def keep(self, upload: Path, delivery_folder: DeliveryPrefix, name: str) -> None:
        """Uploads atomically, also in several parts."""
        import obstore

        with self.translate_errors():
            obstore.put(self.objects, self.key(delivery_folder, name), upload)

    def files(self, delivery_folder: DeliveryPrefix) -> list[Artifact]:
        found = [
            Artifact(name, size)
            for path, size in self.list_under(f"{self.path(delivery_folder)}/")
            if "/" not in (name := path.removeprefix(f"{self.path(delivery_folder)}/"))
        ]
        return sorted(found, key=lambda each: each.name)

    def open(self, delivery_folder: DeliveryPrefix, name: str) -> ArtifactContent | None:
        import obstore

        with self.translate_errors():
            try:
                found = obstore.get(self.objects, self.key(delivery_folder, name))
            except FileNotFoundError:
                return None
            return ArtifactContent(
                found.meta["size"], self.read(found.stream(CHUNK_BYTES)), do_nothing
            )

    def read(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        with self.translate_errors():
            yield from map(bytes, stream)

    def remove(self, delivery_folder: DeliveryPrefix, name: str) -> None:
        self.delete([self.key(delivery_folder, name)])

    def clear(self, delivery_folder: DeliveryPrefix) -> None:
        self.delete([path for path, _ in self.list_under(f"{self.path(delivery_folder)}/")])

    def delete(self, paths: list[str]) -> None:
        import obstore

        if paths:
            with self.translate_errors():
                obstore.delete(self.objects, paths)

    def owners(self, after: MessagePrefix | None, limit: int) -> list[MessagePrefix]:
        # Sorts after the last key of that message, because 0 follows /.
        offset = None if after is None else f"{self.store}/{after.tenant}/{after.id}0"
        found: dict[MessagePrefix, None] = {}
        for path, _ in self.list_under(f"{self.store}/", offset):
            match path.split("/"):
                case [_, tenant, id, _, _] if id.isdecimal():
                    found[MessagePrefix(tenant, int(id))] = None
            if len(found) > limit:
                break
        return list(found)[:limit]

    def delivery_folders(self, owner: MessagePrefix) -> list[DeliveryPrefix]:
        prefix = f"{self.store}/{owner.tenant}/{owner.id}/"
        fences = {
            path.removeprefix(prefix).partition("/")[0] for path, _ in self.list_under(prefix)
        }
        numbers = sorted(int(fence) for fence in fences if fence.isdecimal())
        return [DeliveryPrefix(owner.tenant, owner.id, number) for number in numbers]

    def list_under(self, prefix: str, offset: str | None = None) -> Iterator[tuple[str, int]]:
        """Yields sorted paths and sizes."""
        import obstore

        with self.translate_errors():
            for page in obstore.list(self.objects, prefix, offset=offset, chunk_size=PAGE_SIZE):
                for each in page:
                    yield each["path"], each["size"]

    def tidy(self, age: float) -> int:
        """Does nothing: unfinished uploads are in the system's temporary directory."""
        return 0

    def examine(self) -> Check:
        try:
            next(self.list_under(f"{self.store}/"), None)
        except StoreUnreachable as error:
            return Check("artifacts", str(error), False)
        return Check("artifacts", self.url)

    def path(self, delivery_folder: DeliveryPrefix) -> str:
        return f"{self.store}/{delivery_folder.tenant}/{delivery_folder.id}/{delivery_folder.fence}"

    def key(self, delivery_folder: DeliveryPrefix, name: str) -> str:
        return f"{self.path(delivery_folder)}/{name}"

    def translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(f"artifacts in {self.url}")


def do_nothing() -> None: ...


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Raises errors of the bucket as store errors."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnreachable(f"{what}: {shorten_reason(str(error))}") from None


def shorten_reason(text: str) -> str:
    if found := S3_ERROR.search(text):
        return ": ".join(found.groups())
    return text.strip().partition("\n")[0][:200]


def connect(url: str, what: str) -> "ObjectStore":
    """Connects with region, endpoint and credentials from AWS_* environment variables."""
    with require_extra("s3"):
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    if "@" in url or "?" in url:
        raise InvalidInput(
            f"{what}: use s3://BUCKET/PREFIX and pass credentials in environment variables"
        )
    try:
        return S3Store.from_url(url, retry_config=RETRY_OPTIONS)
    except (BaseError, ValueError) as error:
        raise InvalidInput(f"{what} in {url}: {shorten_reason(str(error))}") from None
