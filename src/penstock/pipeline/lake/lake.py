"""The lake: Parquet files that manifests refer to.

A manifest is written atomically and once. From then on its batch is in the lake.
"""

import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

import msgspec

from penstock.errors import InvalidInput, InvalidState
from penstock.model.store_types import Cursor
from penstock.pipeline.lake.files import LakeFiles, is_data, open_files
from penstock.pipeline.lake.manifest import LakeIdentity, Manifest, decode, decode_label, encode
from penstock.pipeline.lake.schema import TABLES, VERSION

LABEL = "lake.json"
MANIFESTS = "_manifest"
# 7, or 1-7 after a compaction.
BATCHES = re.compile(r"(\d{10})(?:-(\d{10}))?")
# Each read may be an HTTP request.
MAX_PARALLEL_READS = 16


class Lake:
    def __init__(self, files: LakeFiles, label: LakeIdentity) -> None:
        self.files = files
        self.label = label

    @property
    def where(self) -> str:
        return self.files.where

    @property
    def cursor_name(self) -> str:
        """The name of this export's cursor in the store."""
        return f"lake {self.label.id}"

    def all_manifests(self) -> list[Manifest]:
        names = self.list_manifest_names()
        with ThreadPoolExecutor(MAX_PARALLEL_READS) as pool:
            texts = list(pool.map(self.files.read, names))
        # A missing one was removed by a compaction.
        return [
            self.decode_manifest(name, text)
            for name, text in zip(names, texts, strict=True)
            if text is not None
        ]

    def list_manifest_names(self) -> list[str]:
        return sorted(name for name in self.files.names(MANIFESTS) if name.endswith(".json"))

    def decode_manifest(self, name: str, text: bytes) -> Manifest:
        path = f"{self.where}/{name}"
        manifest = decode(text, path)
        if manifest.lake != self.label.id or name != make_manifest_name(manifest):
            raise InvalidState(f"{path!r} belongs to another lake or batch")
        return manifest

    def manifests(self) -> list[Manifest]:
        return self.chain_manifests(self.all_manifests())

    def chain_manifests(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Returns manifests in order and without gaps. A compacted one replaces its originals."""
        chain: list[Manifest] = []
        for each in sorted(manifests, key=lambda each: (each.first, -each.last)):
            next_batch = chain[-1].last + 1 if chain else 1
            if each.last < next_batch:
                continue
            if each.first != next_batch:
                raise InvalidState(
                    f"lake {self.where!r} has a manifest of batch {each.first} and none of batch"
                    f" {next_batch}; restore it from a copy, or create a new lake"
                )
            chain.append(each)
        return chain

    def publish(self, manifest: Manifest) -> None:
        """Adds the files of a batch to the lake, durably."""
        written = self.files.write_once(make_manifest_name(manifest), encode(manifest))
        if not written or self.is_overtaken(manifest):
            raise InvalidState(
                f"another process wrote batch {manifest.last} of lake {self.where!r}"
            )

    def is_overtaken(self, manifest: Manifest) -> bool:
        """True if another manifest covers these batches, because they were compacted meanwhile."""
        others = {*self.list_manifest_names()} - {make_manifest_name(manifest)}
        return any(is_within(make_manifest_name(manifest), other) for other in others)

    def sweep(self) -> int:
        """Removes files of batches that were never published and never will be."""
        manifests = self.all_manifests()
        named = {part.path for each in manifests for part in each.parts}
        over = [make_manifest_name(each) for each in manifests]
        strays = [
            name
            for table in TABLES
            for name in filter(is_data, self.files.names(table))
            if name not in named
            and (self.files.exclusive or any(is_within(name, each) for each in over))
        ]
        self.files.remove(strays)
        return len(strays)

    def drop_compacted(self) -> int:
        """Removes what an earlier compaction replaced. Queries from before it have ended."""
        manifests = self.all_manifests()
        kept = {each.name for each in self.chain_manifests(manifests)}
        gone = [make_manifest_name(each) for each in manifests if each.name not in kept]
        self.files.remove(gone)
        self.sweep()
        return len(gone)

    @property
    def end(self) -> Cursor:
        chain = self.manifests()
        return chain[-1].end if chain else Cursor()


def make_manifest_name(manifest: Manifest) -> str:
    return f"{MANIFESTS}/{manifest.name}"


def is_within(name: str, other: str) -> bool:
    """True if the batches in the first name are among those in the other."""
    first, last = parse_batches(name)
    low, high = parse_batches(other)
    return low <= first and last <= high


def parse_batches(name: str) -> tuple[int, int]:
    found = BATCHES.search(name)
    if found is None:
        return 0, 0
    return int(found[1]), int(found[2] or found[1])


def find(place: str) -> Lake:
    """Opens an existing lake."""
    return read_label(open_files(place))


def read_label(files: LakeFiles) -> Lake:
    text = files.read(LABEL)
    if text is None:
        raise InvalidInput(f"no lake at {files.where!r}; penstock pipeline extract creates one")
    return Lake(files, decode_label(text, f"{files.where}/{LABEL}"))


@contextmanager
def hold_lock(place: str, store: str) -> Iterator[Lake]:
    """Locks the lake of this store, where locks are supported, and creates it if missing."""
    files = open_files(place)
    with files.hold():
        create_if_missing(files, store)
        lake = read_label(files)
        refuse_foreign(lake, store)
        lake.sweep()
        yield lake


def create_if_missing(files: LakeFiles, store: str) -> None:
    # Before the label is read, because another process may be creating the lake.
    others = list(islice(files.names(), 3))
    if files.read(LABEL) is not None:
        return
    if others:
        raise InvalidInput(
            f"{files.where!r} is not a lake and not empty; it contains {', '.join(sorted(others))}"
        )
    text = msgspec.json.encode(LakeIdentity(VERSION, uuid.uuid4().hex[:12], store))
    if files.write_once(LABEL, text) and files.write_once(LABEL, text + b"\n"):
        files.remove([LABEL])
        raise InvalidInput(
            f"lake {files.where!r}: the server overwrites existing objects and ignores"
            " If-None-Match, so two concurrent extracts could not detect each other"
        )


def refuse_foreign(lake: Lake, store: str) -> None:
    if lake.label.store != store:
        raise InvalidState(f"lake {lake.where!r} belongs to another store; choose another --lake")
