"""Schedules that tick together are fired together."""

import pytest

from tests.firings import due_firings
from tests.redis.scenes import open_store
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio

SCHEDULES = 250


async def test_schedules_are_fired_in_few_round_trips(redis_server: Redis, url: str) -> None:
    async with Proxy(redis_server.port) as proxy, await open_store(proxy.url(url)) as store:
        firings = await due_firings(store, SCHEDULES)
        proxy.requests = 0
        assert await store.fire(firings) == [True] * SCHEDULES
        assert proxy.requests < SCHEDULES / 2
        assert await store.fire(firings) == [False] * SCHEDULES
