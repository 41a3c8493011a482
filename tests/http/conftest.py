"""Servers on a SQLite file and on PostgreSQL, one for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.extent import LONG
from tests.http.receiver import Receiver, receiving
from tests.http.served import SENDING, Served, served
from tests.servers.places import memory

STORES = ("sqlite", "postgres")
OTHER_STORES = ("mariadb", "redis")


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="penstock-", dir=memory()) as name:
        yield Path(name)


class Kept:
    """What is started once for all tests of a process. A module has its tests on both stores in
    turn, and a fixture with parameters ends with each turn."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.servers: dict[str, Served] = {}

    def url(self, request: pytest.FixtureRequest, folder: Path, name: str) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{folder}/{name}.db"
        if name not in self.urls:
            self.urls[name] = request.getfixturevalue("postgres_server").create_database()
        return self.urls[name]

    def server(self, url: str, folder: Path, *words: object) -> Served:
        if url not in self.servers:
            server = Served(url, folder, *words)
            try:
                server.wait_until_ready()
            except BaseException:
                server.end()
                raise
            self.servers[url] = server
        return self.servers[url]


@pytest.fixture(scope="package")
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    for server in kept.servers.values():
        server.end()


@pytest.fixture(scope="package", params=STORES)
def store(request: pytest.FixtureRequest, folder: Path, kept: Kept) -> str:
    return kept.url(request, folder, "queue")


@pytest.fixture(scope="package")
def server(store: str, folder: Path, kept: Kept) -> Served:
    return kept.server(store, folder)


@pytest.fixture(scope="module", params=(*STORES, *OTHER_STORES))
def every_server(
    request: pytest.FixtureRequest,
    folder: Path,
    kept: Kept,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """A server on each of the four stores in turn. The others have tests that empty them."""
    if request.param in STORES:
        yield kept.server(kept.url(request, folder, "queue"), folder)
        return
    store = request.getfixturevalue(f"{request.param}_server")
    with store.database() as url, served(url, tmp_path_factory.mktemp("every")) as running:
        yield running


# What is sent, and when, is the same on every store.
@pytest.fixture(scope="package", params=["sqlite", pytest.param("postgres", marks=LONG)])
def caller(request: pytest.FixtureRequest, folder: Path, kept: Kept) -> Served:
    """One that may send callbacks and notices to this machine, on a store of its own: others would
    send them, too, and may not."""
    return kept.server(kept.url(request, folder, "caller"), folder, *SENDING)


@pytest.fixture(scope="package")
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def own_server(folder: Path, tmp_path: Path) -> Iterator[Served]:
    """One that a test may stop, on a file of its own."""
    with served(f"sqlite:///{tmp_path}/own.db", tmp_path) as running:
        yield running


@pytest.fixture(scope="package")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that takes short requests alone."""
    home = tmp_path_factory.mktemp("small")
    with served(f"sqlite:///{home}/small.db", home, "--max-request", 4096) as running:
        yield running
