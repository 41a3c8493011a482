"""What every test may rely on: private servers, one of each kind for each test process."""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server, Unavailable

S = TypeVar("S", bound=Server)


def started(name: str, start: Callable[[], S]) -> S:
    """A developer may do without; the build may not."""
    try:
        return start()
    except Unavailable as reason:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"{name} cannot be started: {reason}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with started("PostgreSQL", Postgres) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    with started("MariaDB", MariaDB) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with started("Redis", Redis) as server:
        yield server
