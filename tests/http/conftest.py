"""Servers on a SQLite file and on PostgreSQL, one for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.http.served import Served, served
from tests.servers.places import memory

STORES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="penstock-", dir=memory()) as name:
        yield Path(name)


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/queue.db"
        return
    with request.getfixturevalue("postgres_server").database() as url:
        yield url


@pytest.fixture(scope="session")
def server(store: str, folder: Path) -> Iterator[Served]:
    with served(store, folder) as running:
        yield running


@pytest.fixture
def own_server(folder: Path, tmp_path: Path) -> Iterator[Served]:
    """One that a test may stop, on a file of its own."""
    with served(f"sqlite:///{tmp_path}/own.db", tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that takes short requests alone."""
    home = tmp_path_factory.mktemp("small")
    with served(f"sqlite:///{home}/small.db", home, "--max-request", 4096) as running:
        yield running
