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
# They take minutes: begun last, one process would work on while the others have nothing left.
LONGEST = ("faults/test_storm.py", "conformance/test_machine.py", "mutation/test_mutations.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))


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
