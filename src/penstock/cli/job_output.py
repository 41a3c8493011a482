"""What the command of a shell job printed, in the files its worker wrote."""

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


def output_directory(url: str) -> str:
    """Beside the file, penstock.db.jobs/ID/stdout.log; here, if the store is not a file."""
    name = get_file_path(url) or f"penstock.{find_output_folder(url) or 'db'}"
    return f"{name}.jobs"


def find_output_folder(url: str) -> str:
    """Server and database: another one has a message of the same id."""
    return re.sub(r"[^\w.-]+", "-", redact_url(url).partition("://")[2])


def find_output_files(url: str, id: int) -> dict[str, str]:
    """The files there are, by stream."""
    folder = os.path.join(output_directory(url), str(id))
    paths = {stream: os.path.join(folder, f"{stream}.log") for stream in STREAMS}
    return {stream: path for stream, path in paths.items() if os.path.exists(path)}


def find_folder(files: dict[str, str]) -> str | None:
    return next((os.path.dirname(path) for path in files.values()), None)


def read_as_written(files: dict[str, str], *, whole: bool) -> dict[str, Any]:
    return {
        stream: {"file": os.path.abspath(path), "text": read(path, whole)}
        for stream, path in files.items()
    }


def read(path: str, whole: bool) -> str:
    """All of it, or the last lines."""
    with open(path, "rb") as file:
        if whole:
            return file.read().decode(errors="replace")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def print_output(id: int, files: dict[str, str]) -> None:
    if not files:
        raise NotFound(f"message {id} has no output here: no shell worker of this machine ran it")
    for stream, path in files.items():
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(read(path, whole=True))


def print_tails(files: dict[str, str]) -> None:
    """The last lines of each stream, if the command wrote any."""
    for path in files.values():
        lines = read(path, whole=False).splitlines()
        if all(line.startswith("--- attempt ") for line in lines):
            continue
        print(f"\n{os.path.basename(path)}:")
        for line in lines:
            print(f"  {cut(escape_control(line), 200)}")
