"""Schedules that tick together are fired together."""

import pytest

from penstock.stores.postgres.store import PostgresStore
from tests.firings import due_firings
from tests.postgres.scenes import connect, open_store, places
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

SCHEDULES = 100
LOCK_FIRST = "SELECT FROM penstock.schedule ORDER BY id LIMIT 1 FOR UPDATE"


async def test_schedules_are_fired_in_few_round_trips(postgres_server: Postgres, url: str) -> None:
    async with Proxy(postgres_server.port) as proxy, await open_store(proxy.url(url)) as store:
        firings = await due_firings(store, SCHEDULES)
        proxy.requests = 0
        assert await store.fire(firings) == [True] * SCHEDULES
        assert proxy.requests < SCHEDULES / 2
        assert await places(store) == {"message": SCHEDULES, "ready": SCHEDULES}


async def test_a_schedule_that_is_locked_holds_up_no_other(store: PostgresStore, url: str) -> None:
    firings = await due_firings(store, 2)
    async with connect(url, default_transaction_read_only="off") as other:
        await other.execute("BEGIN")
        await other.execute(LOCK_FIRST)
        assert await store.fire(firings) == [False, True]
        await other.execute("ROLLBACK")
    assert await store.fire(firings) == [True, False]
