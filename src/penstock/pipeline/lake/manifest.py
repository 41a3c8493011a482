"""Manifests: the contents of a batch, and their encoding."""

from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidState
from penstock.model.store_types import Cursor
from penstock.pipeline.lake.schema import VERSION, Table


class LakePart(Struct, frozen=True):
    """One Parquet file; its path is relative to the lake."""

    table: Table
    path: str
    rows: int
    bytes: int
    sha256: str


class Manifest(Struct, frozen=True):
    """The batches `first` to `last`: one batch, or several after a compaction.

    They contain the feed above `start`, up to `end`.
    """

    schema: int
    lake: str
    first: int
    last: int
    start: Cursor
    end: Cursor
    # A digest of the rows at `end`, which detects a store restored from a backup.
    witness: str
    parts: tuple[LakePart, ...]
    # A digest of all other fields, which detects a damaged manifest.
    check: str = ""

    @property
    def name(self) -> str:
        return f"{self.first:010}-{self.last:010}.json"


class LakeIdentity(Struct, frozen=True):
    """Identifies a lake and its store."""

    schema: int
    id: str
    store: str


class Versioned(Struct, frozen=True):
    schema: int


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.encode(replace(manifest, check=compute_checksum(manifest)))


def compute_checksum(manifest: Manifest) -> str:
    return sha256(msgspec.json.encode(replace(manifest, check=""))).hexdigest()


def decode(text: bytes, path: str) -> Manifest:
    refuse_newer(text, path)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError:
        raise make_torn_error(path) from None
    if manifest.check != compute_checksum(manifest):
        raise make_torn_error(path)
    return manifest


def decode_label(text: bytes, path: str) -> LakeIdentity:
    refuse_newer(text, path)
    try:
        return msgspec.json.decode(text, type=LakeIdentity)
    except msgspec.DecodeError:
        raise make_torn_error(path) from None


def refuse_newer(text: bytes, path: str) -> None:
    try:
        version = msgspec.json.decode(text, type=Versioned).schema
    except msgspec.DecodeError:
        raise make_torn_error(path) from None
    if version > VERSION:
        raise InvalidState(
            f"{path!r} has schema {version} and this Penstock supports up to {VERSION};"
            " upgrade Penstock"
        )


def make_torn_error(path: str) -> InvalidState:
    return InvalidState(
        f"{path!r} is damaged or was edited; restore it from a copy, or create a new lake"
    )
