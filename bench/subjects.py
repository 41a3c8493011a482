"""The stores to benchmark, and their references and peers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from bench.processes import Start
from bench.references import huey_loop, sqlite_loops
from bench.usage import Usage
from tests.servers.server import Server


class Loops(Protocol):
    """Functions that fill and drain a queue, each in its own process."""

    def fill(self, start: Start, url: str, count: int) -> None: ...

    def drain(self, start: Start, url: str, count: int) -> float: ...


class Reference(Loops, Protocol):
    """A hand-written loop without Penstock."""

    BATCH: int

    def publish_one(self, start: Start, url: str, seconds: float) -> float: ...

    def bulk(self, start: Start, url: str, count: int) -> float: ...

    def send(self, start: Start, url: str, count: int, pause: float) -> list[float]: ...

    def receive(self, start: Start, url: str, count: int) -> list[float]: ...


class Peer(Loops, Protocol):
    """Another queue for Python on the same store, if it is installed."""

    NAME: str

    def is_installed(self) -> bool: ...


class Subject(Protocol):
    """A store to benchmark. The peer may be None."""

    name: str
    terms: str
    reference: Reference
    peer: Peer | None

    def fresh(self) -> AbstractContextManager[str]:
        """Yields the URL of an empty store, and removes it afterwards."""


@runtime_checkable
class Served(Subject, Protocol):
    """A store with its own server."""

    server: Server

    def usage(self) -> Usage: ...


class Sqlite:
    """Gives each run its own file below `directory`."""

    name = "sqlite"
    reference: Reference = sqlite_loops
    peer: Peer | None = huey_loop

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.terms = f"synchronous=FULL on both sides. Files in {directory.name}."

    @contextmanager
    def fresh(self) -> Iterator[str]:
        with TemporaryDirectory(dir=self.directory) as place:
            yield f"sqlite:///{Path(place).resolve()}/queue.db"
