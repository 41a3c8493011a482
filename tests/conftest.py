"""What every test may rely on."""

import os
from collections.abc import Iterator

import pytest

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.server import Unavailable


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One for each test process. A developer may do without; the build may not."""
    try:
        server = Postgres()
    except Unavailable as reason:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"PostgreSQL cannot be started: {reason}")
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    """One for each test process. A developer may do without; the build may not."""
    try:
        server = MariaDB()
    except Unavailable as reason:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"MariaDB cannot be started: {reason}")
    with server:
        yield server
