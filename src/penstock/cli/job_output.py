"""Reads the output of shell jobs from the files that workers write."""

import os
import re
import sys
from typing import Any

from penstock.cli.output import cut, escape_control
from penstock.errors import NotFound
from penstock.stores.urls import get_file_path, redact_url

STREAMS = ("stdout", "stderr")
TAIL_LINES = 10
TAIL_BYTES = 65_536


def locate_output(url: str) -> str:
    """Return the directory next to the SQLite file, or in the working directory for a server."""
    name = get_file_path(url) or f"penstock.{make_server_slug(url) or 'db'}"
    return f"{name}.jobs"


def make_server_slug(url: str) -> str:
    """Name the server and database, because ids repeat across stores."""
    return re.sub(r"[^\w.-]+", "-", redact_url(url).partition("://")[2])


def find_output_files(url: str, id: int) -> dict[str, str]:
    """Find the existing output files, by stream."""
    folder = os.path.join(locate_output(url), str(id))
    paths = {stream: os.path.join(folder, f"{stream}.log") for stream in STREAMS}
    return {stream: path for stream, path in paths.items() if os.path.exists(path)}


def find_folder(files: dict[str, str]) -> str | None:
    return next((os.path.dirname(path) for path in files.values()), None)


def describe_output(files: dict[str, str], *, whole: bool) -> dict[str, Any]:
    return {
        stream: {"file": os.path.abspath(path), "text": read(path, whole)}
        for stream, path in files.items()
    }


def read(path: str, whole: bool) -> str:
    """Read the whole file, or its last lines."""
    with open(path, "rb") as file:
        if whole:
            return file.read().decode(errors="replace")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def print_output(id: int, files: dict[str, str]) -> None:
    if not files:
        raise NotFound(
            f"no output of message {id} on this machine; another machine may have run it"
        )
    for stream, path in files.items():
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(read(path, whole=True))


def print_tails(files: dict[str, str]) -> None:
    """Print the last lines of each stream that is not empty."""
    for path in files.values():
        lines = read(path, whole=False).splitlines()
        if all(line.startswith("--- attempt ") for line in lines):
            continue
        print(f"\n{os.path.basename(path)}:")
        for line in lines:
            print(f"  {cut(escape_control(line), 200)}")
