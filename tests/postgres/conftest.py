"""A database for each test, and a store in it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import open_store
from tests.servers.postgres import Postgres


@pytest.fixture(scope="session")
def template(postgres_server: Postgres) -> str:
    """The name of a database with a schema in it: copied sooner than made."""
    url = postgres_server.create_database()

    async def make() -> None:
        async with await open_store(url):
            pass

    # The test that asks may have a loop of its own.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(asyncio.run, make()).result()
    return url.rpartition("/")[2]


@pytest.fixture
def bare(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def url(postgres_server: Postgres, template: str) -> Iterator[str]:
    with postgres_server.database(template) as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with await open_store(url) as store:
        yield store
