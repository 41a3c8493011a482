"""The lake: a directory of Parquet files, of which those count that a manifest names.

A manifest appears whole or not at all, and never twice: a batch is in the lake from then on.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.errors import InvalidInput, InvalidState, NotYet
from penstock.pipeline.manifest import Label, Manifest, decode, decode_label, encode
from penstock.pipeline.schema import TABLES, VERSION
from penstock.ticket import Cursor

LABEL = "lake.json"
MANIFESTS = "_manifest"


class Lake:
    def __init__(self, root: Path, label: Label) -> None:
        self.root = root
        self.label = label

    @property
    def cursor_name(self) -> str:
        """What the store records this export as."""
        return f"lake {self.label.id}"

    def all_manifests(self) -> list[Manifest]:
        paths = sorted((self.root / MANIFESTS).glob("*.json"))
        found = [decode(path.read_bytes(), str(path)) for path in paths]
        for manifest, path in zip(found, paths, strict=True):
            if manifest.lake != self.label.id or manifest.name != path.name:
                raise InvalidState(f"{str(path)!r} is the manifest of another lake or batch")
        return found

    def manifests(self) -> list[Manifest]:
        """In order and without a gap. What was compacted stands for what it was made of."""
        chain: list[Manifest] = []
        for each in sorted(self.all_manifests(), key=lambda each: (each.first, -each.last)):
            next_batch = chain[-1].last + 1 if chain else 1
            if each.last < next_batch:
                continue
            if each.first != next_batch:
                raise InvalidState(
                    f"lake {str(self.root)!r} has no manifest of batch {next_batch}, and one of"
                    f" batch {each.first}: put back a copy of it, or begin a new lake"
                )
            chain.append(each)
        return chain

    def publish(self, manifest: Manifest) -> None:
        """From now on its files are in the lake, also after a power cut."""
        folder = self.root / MANIFESTS
        folder.mkdir(exist_ok=True)
        if not write_once(folder / manifest.name, encode(manifest)):
            raise InvalidState(f"another process wrote batch {manifest.last} of {str(self.root)!r}")

    def sweep(self) -> int:
        """Removes files of batches that never came to be; by whoever holds the lake."""
        named = {part.path for each in self.all_manifests() for part in each.parts}
        strays = [
            path
            for table in TABLES
            for path in (self.root / table).glob("*/*")
            if str(path.relative_to(self.root)) not in named
        ]
        for path in strays:
            path.unlink()
            # Others may be in it.
            with suppress(OSError):
                path.parent.rmdir()
        return len(strays)

    def drop_compacted(self) -> int:
        """Removes what a compaction stands for; readers that began before it are done by then."""
        kept = {each.name for each in self.manifests()}
        gone = [each for each in self.all_manifests() if each.name not in kept]
        for each in gone:
            (self.root / MANIFESTS / each.name).unlink()
        self.sweep()
        return len(gone)

    @property
    def end(self) -> Cursor:
        chain = self.manifests()
        return chain[-1].end if chain else Cursor()


def directory(place: str) -> Path:
    scheme, mark, rest = place.partition("://")
    if not mark:
        return Path(place).absolute()
    if scheme == "file":
        return Path(rest).absolute()
    raise NotYet(f"lake {place!r}: a lake is a directory; {scheme}:// is not built yet")


def find(place: str) -> Lake:
    """A lake that is there."""
    root = directory(place)
    try:
        text = (root / LABEL).read_bytes()
    except FileNotFoundError:
        raise InvalidInput(
            f"no lake at {str(root)!r}; penstock pipeline extract makes one"
        ) from None
    return Lake(root, decode_label(text, str(root / LABEL)))


@contextmanager
def held(place: str, store: str) -> Iterator[Lake]:
    """The lake of this store, made if it is not there, for one process at a time."""
    root = directory(place)
    with lock(root):
        label = Label(VERSION, uuid.uuid4().hex[:12], store)
        if not (root / LABEL).exists():
            refuse_used(root)
            write_once(root / LABEL, msgspec.json.encode(label))
        lake = find(place)
        refuse_foreign(lake, store)
        lake.sweep()
        yield lake


def refuse_foreign(lake: Lake, store: str) -> None:
    if lake.label.store != store:
        raise InvalidState(f"lake {str(lake.root)!r} is of another store; choose another --lake")


def refuse_used(root: Path) -> None:
    if others := [path.name for path in root.iterdir() if path.name != "_lock"]:
        raise InvalidInput(
            f"{str(root)!r} is not a lake and not empty: it has {', '.join(sorted(others)[:3])}"
        )


@contextmanager
def lock(root: Path) -> Iterator[None]:
    """Ends with its process, however that ends."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / "_lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise InvalidInput(f"cannot write the lake {str(root)!r}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InvalidState(f"another process is at work on the lake {str(root)!r}") from None
    finally:
        os.close(handle)


def write_once(path: Path, text: bytes) -> bool:
    """Whole or not at all, and safe from a power cut; False if it is there already."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with open(draft, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
        sync(path.parent)
    return True


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
