"""The stores that can be measured, each beside what it is compared with."""

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
    """Somebody else's way to fill a queue and to drain it, each in a process of its own."""

    def fill(self, start: Start, url: str, count: int) -> None: ...

    def drain(self, start: Start, url: str, count: int) -> float: ...


class Reference(Loops, Protocol):
    """What a programmer without Penstock would write."""

    BATCH: int

    def publish_one(self, start: Start, url: str, seconds: float) -> float: ...

    def bulk(self, start: Start, url: str, count: int) -> float: ...

    def send(self, start: Start, url: str, count: int, pause: float) -> list[float]: ...

    def receive(self, start: Start, url: str, count: int) -> list[float]: ...


class Peer(Loops, Protocol):
    """Another queue for Python on the same store, if it is installed."""

    NAME: str

    def installed(self) -> bool: ...


class Subject(Protocol):
    """A store that is measured. The peer is None where there is none to compare with."""

    name: str
    terms: str
    reference: Reference
    peer: Peer | None

    def fresh(self) -> AbstractContextManager[str]:
        """The URL of an empty store, which is gone afterwards."""


@runtime_checkable
class Served(Subject, Protocol):
    """A store on a server of its own."""

    server: Server

    def usage(self) -> Usage: ...


class Sqlite:
    """Each run has a file of its own below `directory`."""

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
