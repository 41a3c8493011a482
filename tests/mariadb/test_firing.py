"""Schedules that tick together are fired together."""

from contextlib import closing

import pytest

from penstock.stores.mariadb.connection import parse
from penstock.stores.mariadb.store import MariaStore, open_at
from tests.firings import due_firings
from tests.servers.mariadb import MariaDB
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

SCHEDULES = 100
LOCK_FIRST = "SELECT id FROM penstock_schedule ORDER BY id LIMIT 1 FOR UPDATE"


async def test_schedules_are_fired_in_few_round_trips(mariadb_server: MariaDB, url: str) -> None:
    async with (
        Proxy(mariadb_server.port) as proxy,
        await open_at(parse(proxy.url(url))) as store,
    ):
        firings = await due_firings(store, SCHEDULES)
        proxy.requests = 0
        assert await store.fire(firings) == [True] * SCHEDULES
        assert proxy.requests < SCHEDULES / 2
        assert await store.fire(firings) == [False] * SCHEDULES


async def test_a_schedule_that_is_locked_holds_up_no_other(
    store: MariaStore, mariadb_server: MariaDB, url: str
) -> None:
    firings = await due_firings(store, 2)
    with closing(mariadb_server.connect(url.rpartition("/")[2])) as other:
        other.begin()
        other.cursor().execute(LOCK_FIRST)
        assert await store.fire(firings) == [False, True]
        other.rollback()
    assert await store.fire(firings) == [True, False]
