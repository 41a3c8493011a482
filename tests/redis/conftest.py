"""An empty database for each test, and a store in it."""

from collections.abc import AsyncIterator

import pytest

from penstock.stores.redis.store import RedisStore
from tests.redis.scenes import open_store
from tests.servers.redis import Redis


@pytest.fixture
def url(redis_server: Redis) -> str:
    with redis_server.connect() as outside:
        outside.flushall()
    return redis_server.url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    async with await open_store(url) as store:
        yield store
