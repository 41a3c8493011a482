"""An app on a file and one in memory; a store by its URL; workers as processes."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock import Penstock
from tests.extent import LONG
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

ROOT = Path(__file__).parents[2]
Start: TypeAlias = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(
    params=[
        "sqlite",
        "postgres",
        pytest.param("mariadb", marks=LONG),
        pytest.param("redis", marks=LONG),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a store that other processes see as well."""
    yield from url_of(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "redis"])
def every_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same for tests so short that every run has time for every store."""
    yield from url_of(request, tmp_path)


def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/queue.db"
        return
    server: Postgres | MariaDB | Redis = request.getfixturevalue(f"{request.param}_server")
    with server.database() as url:
        yield url


@pytest.fixture
async def filed(tmp_path: Path) -> AsyncIterator[Penstock]:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")
    yield app
    await app.aclose()


@pytest.fixture(params=["file", "memory"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Penstock]:
    url = "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/queue.db"
    app = Penstock(url)
    yield app
    await app.aclose()


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts `program` as a worker, and leaves none behind."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        concurrency: int = 10, lease: float = 1.0, grace: float = 20.0
    ) -> "subprocess.Popen[bytes]":
        words = [str(concurrency), str(lease), str(grace)]
        command = [sys.executable, "-m", "tests.worker.program", *words]
        environment = os.environ | {
            "PENSTOCK_URL": url,
            "PENSTOCK_ARTIFACTS": str(tmp_path / "artifacts"),
        }
        with open(tmp_path / "log", "ab") as log:
            started.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
            )
        return started[-1]

    yield start
    for worker in started:
        worker.kill()
        worker.wait()
