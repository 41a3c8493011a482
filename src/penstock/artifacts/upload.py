"""An upload: written aside, and moved to the folder of its delivery when it is complete."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from penstock.artifacts.local import translate_errors
from penstock.artifacts.rules import Artifact, check_name
from penstock.errors import BodyTooLarge, InvalidInput
from penstock.rules.validation import clip

CHUNK_BYTES = 1_048_576
Content: TypeAlias = bytes | bytearray | memoryview | Path


class Upload:
    """A file being written. Its methods block on the disk; the caller that began it discards it."""

    def __init__(self, name: str, begun: tuple[int, Path], most: int) -> None:
        number, self.path = begun
        self.name = name
        self.most = most
        self.size = 0
        self.file = os.fdopen(number, "wb")

    @property
    def artifact(self) -> Artifact:
        return Artifact(self.name, self.size)

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.most:
            raise BodyTooLarge(f"artifact {clip(self.name)} has more than {self.most} bytes")
        with translate_errors(self.path.parent):
            self.file.write(piece)

    def seal(self) -> None:
        with translate_errors(self.path.parent):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()

    def fill(self, content: Content) -> None:
        for piece in read_pieces(content):
            self.write(piece)
        self.seal()

    def discard(self) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(FileNotFoundError):
            self.path.unlink()


def check_content(name: object, content: object) -> str:
    if not isinstance(content, bytes | bytearray | memoryview | Path):
        kind = type(content).__name__
        raise InvalidInput(f"artifact {clip(name)} is {kind}, and must be bytes or a pathlib.Path")
    return check_name(name)


def read_pieces(content: Content) -> Iterator[bytes]:
    if not isinstance(content, Path):
        yield bytes(content)
        return
    with content.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
