"""Artifact storage: a local directory or a bucket."""

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
    """The content of a file in chunks. The caller must close it."""

    size: int
    pieces: Iterator[bytes]
    close: Callable[[], None]


class ArtifactStorage(Protocol):
    """Stores files by delivery and name. Methods block, so call them from threads."""

    def begin(self) -> tuple[int, Path]:
        """Creates a temporary file. Returns its open descriptor and path."""

    def keep(self, upload: Path, delivery_folder: DeliveryPrefix, name: str) -> None:
        """Stores an upload atomically and durably. Replaces a file of the same name."""

    def files(self, delivery_folder: DeliveryPrefix) -> list[Artifact]: ...

    def open(self, delivery_folder: DeliveryPrefix, name: str) -> ArtifactContent | None: ...

    def remove(self, delivery_folder: DeliveryPrefix, name: str) -> None: ...

    def clear(self, delivery_folder: DeliveryPrefix) -> None:
        """Removes all files of a delivery."""

    def owners(self, after: MessagePrefix | None, limit: int) -> list[MessagePrefix]:
        """Lists messages that have files, in an order that the storage defines."""

    def delivery_folders(self, owner: MessagePrefix) -> list[DeliveryPrefix]: ...

    def tidy(self, age: float) -> int:
        """Removes unfinished uploads that are older than `age` seconds."""

    def examine(self) -> Check: ...


def open_storage(place: str, secret: bytes) -> ArtifactStorage:
    """Opens the storage of the store with this secret. Several stores may share a location, and a
    recreated store does not see the files of the old one."""
    store = blake2s(b"artifacts", key=secret[:32], digest_size=8).hexdigest()
    if place.startswith(BUCKET):
        from penstock.artifacts.s3 import S3ArtifactStorage

        return S3ArtifactStorage(place, store)
    if SCHEME.match(place):
        raise InvalidInput(
            f"cannot store artifacts in {redact_url(place)}; use a directory or s3://BUCKET/PREFIX"
        )
    from penstock.artifacts.local import LocalArtifactStorage

    return LocalArtifactStorage(Path(place).absolute(), store)


def default_location(url: str) -> str:
    """Returns penstock.db.artifacts beside an SQLite file, or a directory here for a server."""
    server = re.sub(r"[^\w.-]+", "-", redact_url(url).partition("://")[2]) or "db"
    return f"{get_file_path(url) or f'penstock.{server}'}.artifacts"
