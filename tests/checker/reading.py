"""Reads a directory of history files."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from .events import AnyLine
from .history import History, assemble


def read(directory: Path) -> History:
    """The history of all `*.jsonl` files; what cannot be read becomes a flaw, never an error."""
    lines: list[AnyLine] = []
    flaws: list[str] = []
    decoder = msgspec.json.Decoder(AnyLine)
    for path in sorted(directory.glob("*.jsonl")):
        for number, text in enumerate(_whole_lines(path), 1):
            try:
                lines.append(decoder.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                flaws.append(f"{path.name}:{number}: {error}")
    return assemble(lines, flaws)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """A killed process may leave its last line torn."""
    with path.open("rb") as file:
        yield from (text for text in file if text.endswith(b"\n"))
