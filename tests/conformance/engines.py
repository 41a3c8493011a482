"""The kinds of store the suite runs against: how each is opened, and how its time passes."""

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock import stores
from penstock.store import Store
from penstock.testing.simulation import ManualClock
from tests.conformance.mariadb import MariadbEngine
from tests.conformance.postgres import PostgresEngine
from tests.conformance.redis import RedisEngine
from tests.conformance.warm import Connections


class Engine(Protocol):
    # The store outlives its handles, and may have several.
    lasting: bool
    # Its time passes by travel alone.
    still: bool

    async def open(self) -> Store:
        """A handle on the one store of this test."""

    def open_warm(self, connections: Connections) -> AbstractAsyncContextManager[Store]:
        """The same with connections of an earlier test, where the store has a server."""

    async def travel(self, seconds: float) -> None:
        """Time passes for the store, and for nobody else."""

    def version(self) -> int | None:
        """Changes with every write; None where nobody outside can see one."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Holds an old view of the store open, as a backup does."""

    def writing(self) -> AbstractContextManager[None]:
        """Somebody else is in the midst of a write, where there is one writer at a time."""

    def caller(self) -> AbstractContextManager[Any]:
        """A connection of an application, whose transaction is committed at the end."""

    def close(self) -> None: ...


class Sqlite:
    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lasting = path is not None
        self.still = True
        self.clock = ManualClock()
        self.outside: sqlite3.Connection | None = None

    async def open(self) -> Store:
        url = "sqlite://" if self.path is None else f"sqlite:///{self.path}"
        return await stores.open(url, clock=self.clock)

    @asynccontextmanager
    async def open_warm(self, connections: Connections) -> AsyncIterator[Store]:
        async with await self.open() as store:
            yield store

    async def travel(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def version(self) -> int | None:
        if self.path is None:
            return None
        # The number means something only to a connection that read it before.
        if self.outside is None:
            self.outside = sqlite3.connect(self.path)
        (version,) = self.outside.execute("PRAGMA data_version").fetchone()
        return int(version)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        with closing(sqlite3.connect(self.path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def caller(self) -> Iterator[Any]:
        if self.path is None:
            pytest.skip("this store has no other connections")
        with closing(sqlite3.connect(self.path)) as connection, connection:
            yield connection

    def close(self) -> None:
        if self.outside is not None:
            self.outside.close()


def sqlite_file(request: pytest.FixtureRequest, directory: Path) -> Engine:
    template, path = request.getfixturevalue("sqlite_template"), directory / "queue.db"
    shutil.copy(template, path)
    # The ballast is only ever unlinked. On another file system the store makes its own.
    with suppress(OSError):
        os.link(f"{template}.ballast", f"{path}.ballast")
    return Sqlite(path)


def mariadb(request: pytest.FixtureRequest, directory: Path) -> Engine:
    return MariadbEngine(request.getfixturevalue("mariadb_server"))


def postgres(request: pytest.FixtureRequest, directory: Path) -> Engine:
    return PostgresEngine(request.getfixturevalue("postgres_server"))


def redis(request: pytest.FixtureRequest, directory: Path) -> Engine:
    return RedisEngine(request.getfixturevalue("redis_server"))


ENGINES: dict[str, Callable[[pytest.FixtureRequest, Path], Engine]] = {
    "sqlite-memory": lambda request, directory: Sqlite(None),
    "sqlite-file": sqlite_file,
    "postgres": postgres,
    "mariadb": mariadb,
    "redis": redis,
}
