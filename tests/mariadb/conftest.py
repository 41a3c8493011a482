"""A database for each test, and a store in it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.stores.mariadb.connection import parse
from penstock.stores.mariadb.store import MariaStore, open_at
from tests.servers.mariadb import MariaDB


@pytest.fixture
def url(mariadb_server: MariaDB) -> Iterator[str]:
    with mariadb_server.database() as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[MariaStore]:
    async with await open_at(parse(url)) as store:
        yield store
