"""A terminal for tests: runs penstock in this process, or as the installed command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, TextIO

import structlog
from click import Group
from click.testing import CliRunner

from penstock.cli.main import main, queuectl

PENSTOCK = Path(sys.executable).with_name("penstock")
QUEUECTL = PENSTOCK.with_name("queuectl")
WAIT_LIMIT_S = 150.0
POLL_INTERVAL_S = 0.05


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """The only object it printed."""
        (line,) = self.lines
        return line

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def rows(self) -> list[list[str]]:
        """The words of a table's rows, without its heading and what is below it."""
        return [row.split() for row in self.out.split("\n\n")[0].splitlines()[1:]]


@contextmanager
def keep_logging() -> Iterator[None]:
    """Undoes what a command does to the log: a logger that it caches hears no later test."""
    before, configure = structlog.get_config(), structlog.configure

    def configure_uncached(*given: Any, **named: Any) -> None:
        configure(*given, **{**named, "cache_logger_on_first_use": False})

    structlog.configure = configure_uncached
    try:
        yield
    finally:
        structlog.configure = configure
        configure(**before)


class Terminal:
    """Runs commands in a directory of its own, without settings from the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = {**kept, "COLUMNS": "80"}

    def call(self, *words: object, code: int = 0, stdin: str | None = None) -> Said:
        """In this process: quick, and the same commands."""
        return self.invoke(main, *words, code=code, stdin=stdin)

    def queuectl(self, *words: object, code: int = 0) -> Said:
        return self.invoke(queuectl, *words, code=code)

    def invoke(self, group: Group, *words: object, code: int = 0, stdin: str | None = None) -> Said:
        with keep_logging():
            asked = [str(word) for word in words]
            ran = CliRunner().invoke(group, asked, input=stdin, env=self.env)
        assert ran.exit_code == code, (words, ran.exit_code, ran.output, ran.exception)
        return Said(ran.exit_code, ran.stdout, ran.stderr)

    @property
    def env(self) -> dict[str, str | None]:
        url = self.environment.get("PENSTOCK_URL")
        return {"COLUMNS": "80", "PENSTOCK_URL": url, "PENSTOCK_APP": None}

    def run(self, *words: object, code: int = 0, **environment: str) -> Said:
        """As the installed command."""
        ran = subprocess.run(
            [PENSTOCK, *map(str, words)],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_LIMIT_S,
            check=False,
        )
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return Said(ran.returncode, ran.stdout, ran.stderr)

    @contextmanager
    def start(
        self, *words: object, stderr: TextIO | int = subprocess.PIPE, **environment: str
    ) -> Iterator["subprocess.Popen[str]"]:
        """Goes on in the background, and is not left behind."""
        process = subprocess.Popen(
            [PENSTOCK, *map(str, words)],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        before = path.stat().st_mtime if path.exists() else None
        path.write_text(text)
        if before is not None:
            # Python takes stale bytecode for fresh if size and whole seconds are the same.
            os.utime(path, (before + 1, before + 1))
        return path

    def state(self, reference: str) -> str:
        state: str = self.call("show", reference, "--json").json["state"]
        return state

    def states(self) -> dict[str, str]:
        listed = self.call("list", "--json", "--limit", 1_000).lines
        return {each["name"] or each["id"]: each["state"] for each in listed}


def until(right: Callable[[], Any]) -> Any:
    """What it gives, as soon as that is something."""
    end = monotonic() + WAIT_LIMIT_S
    while not (found := right()):
        assert monotonic() < end, "it never came"
        Event().wait(POLL_INTERVAL_S)
    return found


def alive(pid: int) -> bool:
    """A zombie is not: it only waits to be buried."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
