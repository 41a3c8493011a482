"""Where files are kept: a local directory, or a bucket."""

import re
from collections.abc import Callable, Iterator
from hashlib import blake2s
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from penstock.artifacts.rules import Artifact, DeliveryPrefix, MessagePrefix
from penstock.errors import InvalidInput
from penstock.store import Check
from penstock.stores.urls import get_file_path, redact_url

BUCKET = "s3://"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class ArtifactContent(Struct, frozen=True):
    """A file, piece by piece. Whoever opened it closes it."""

    size: int
    pieces: Iterator[bytes]
    close: Callable[[], None]


class ArtifactStorage(Protocol):
    """Files by shelf and name. Its methods wait: they are called from threads."""

    def begin(self) -> tuple[int, Path]:
        """A new file for what is not whole yet: open to be written, and where it is."""

    def keep(self, upload: Path, shelf: DeliveryPrefix, name: str) -> None:
        """Seen as a whole, and durable when it returns. Takes the place of one of that name."""

    def files(self, shelf: DeliveryPrefix) -> list[Artifact]: ...

    def open(self, shelf: DeliveryPrefix, name: str) -> ArtifactContent | None: ...

    def remove(self, shelf: DeliveryPrefix, name: str) -> None: ...

    def clear(self, shelf: DeliveryPrefix) -> None:
        """All of the shelf."""

    def owners(self, after: MessagePrefix | None, limit: int) -> list[MessagePrefix]:
        """Messages that have files, in an order of its own."""

    def shelves(self, owner: MessagePrefix) -> list[DeliveryPrefix]: ...

    def tidy(self, age: float) -> int:
        """Removes uploads that nobody has finished for so many seconds."""

    def examine(self) -> Check: ...


def open_storage(place: str, secret: bytes) -> ArtifactStorage:
    """For the store with that secret: several may share a place, and one that is made anew does not
    find the files of the old one."""
    store = blake2s(b"artifacts", key=secret[:32], digest_size=8).hexdigest()
    if place.startswith(BUCKET):
        from penstock.artifacts.s3 import S3ArtifactStorage

        return S3ArtifactStorage(place, store)
    if SCHEME.match(place):
        raise InvalidInput(
            f"artifacts are kept in a directory or in s3://..., not in {redact_url(place)}"
        )
    from penstock.artifacts.local import LocalArtifactStorage

    return LocalArtifactStorage(Path(place).absolute(), store)


def default_location(url: str) -> str:
    """Beside the file, penstock.db.artifacts; here, if the store is not a file."""
    server = re.sub(r"[^\w.-]+", "-", redact_url(url).partition("://")[2]) or "db"
    return f"{get_file_path(url) or f'penstock.{server}'}.artifacts"
