"""Artifacts in a bucket of S3, or of what speaks like it."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.artifacts.place import Reading
from penstock.artifacts.rules import Artifact, Owner, Shelf
from penstock.errors import InvalidInput, StoreUnreachable
from penstock.store import Check

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

PIECE = 1_048_576
PAGE = 1_000
PREFIX = "penstock-upload-"
# Callers wait meanwhile.
PATIENT: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
# What a server of S3 says itself; the rest is how it was asked.
SAID = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")


class Bucket:
    def __init__(self, url: str, store: str) -> None:
        self.url = url
        self.store = store
        self.objects = connected(url, "artifacts")

    def begin(self) -> tuple[int, Path]:
        number, name = tempfile.mkstemp(prefix=PREFIX)
        return number, Path(name)

    def keep(self, upload: Path, shelf: Shelf, name: str) -> None:
        """Whole or not at all, also if it goes in parts."""
        import obstore

        with self.told():
            obstore.put(self.objects, self.key(shelf, name), upload)

    def files(self, shelf: Shelf) -> list[Artifact]:
        found = [
            Artifact(name, size)
            for path, size in self.under(f"{self.path(shelf)}/")
            if "/" not in (name := path.removeprefix(f"{self.path(shelf)}/"))
        ]
        return sorted(found, key=lambda each: each.name)

    def open(self, shelf: Shelf, name: str) -> Reading | None:
        import obstore

        with self.told():
            try:
                found = obstore.get(self.objects, self.key(shelf, name))
            except FileNotFoundError:
                return None
            return Reading(found.meta["size"], self.read(found.stream(PIECE)), nothing)

    def read(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        with self.told():
            yield from map(bytes, stream)

    def remove(self, shelf: Shelf, name: str) -> None:
        self.delete([self.key(shelf, name)])

    def clear(self, shelf: Shelf) -> None:
        self.delete([path for path, _ in self.under(f"{self.path(shelf)}/")])

    def delete(self, paths: list[str]) -> None:
        import obstore

        if paths:
            with self.told():
                obstore.delete(self.objects, paths)

    def owners(self, after: Owner | None, limit: int) -> list[Owner]:
        # What comes after the last key of that message: 0 comes after /.
        offset = None if after is None else f"{self.store}/{after.tenant}/{after.id}0"
        found: dict[Owner, None] = {}
        for path, _ in self.under(f"{self.store}/", offset):
            match path.split("/"):
                case [_, tenant, id, _, _] if id.isdecimal():
                    found[Owner(tenant, int(id))] = None
            if len(found) > limit:
                break
        return list(found)[:limit]

    def shelves(self, owner: Owner) -> list[Shelf]:
        prefix = f"{self.store}/{owner.tenant}/{owner.id}/"
        fences = {path.removeprefix(prefix).partition("/")[0] for path, _ in self.under(prefix)}
        numbers = sorted(int(fence) for fence in fences if fence.isdecimal())
        return [Shelf(owner.tenant, owner.id, number) for number in numbers]

    def under(self, prefix: str, offset: str | None = None) -> Iterator[tuple[str, int]]:
        """Paths and sizes, in order."""
        import obstore

        with self.told():
            for page in obstore.list(self.objects, prefix, offset=offset, chunk_size=PAGE):
                for each in page:
                    yield each["path"], each["size"]

    def tidy(self, age: float) -> int:
        """What a crash leaves is in the system's directory for temporary files."""
        return 0

    def examine(self) -> Check:
        try:
            next(self.under(f"{self.store}/"), None)
        except StoreUnreachable as error:
            return Check("artifacts", str(error), False)
        return Check("artifacts", self.url)

    def path(self, shelf: Shelf) -> str:
        return f"{self.store}/{shelf.tenant}/{shelf.id}/{shelf.fence}"

    def key(self, shelf: Shelf, name: str) -> str:
        return f"{self.path(shelf)}/{name}"

    def told(self) -> AbstractContextManager[None]:
        return told(f"artifacts in {self.url}")


def nothing() -> None: ...


@contextmanager
def told(what: str) -> Iterator[None]:
    """Trouble with a bucket, as the trouble with a store that it is."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnreachable(f"{what}: {reason(str(error))}") from None


def reason(text: str) -> str:
    if found := SAID.search(text):
        return ": ".join(found.groups())
    return text.strip().partition("\n")[0][:200]


def connected(url: str, what: str) -> "ObjectStore":
    """Region, endpoint and credentials are those of the environment: AWS_ENDPOINT_URL and such."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ModuleNotFoundError:
        raise InvalidInput(f"{what} in s3:// need obstore: pip install 'penstock[s3]'") from None
    if "@" in url or "?" in url:
        raise InvalidInput(f"{what}: s3://BUCKET/PREFIX; credentials come by the environment")
    try:
        return S3Store.from_url(url, retry_config=PATIENT)
    except (BaseError, ValueError) as error:
        raise InvalidInput(f"{what} in {url}: {reason(str(error))}") from None
