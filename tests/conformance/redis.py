"""Redis for the suite: one server a process, emptied for each test, its clock the test's."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from penstock import stores
from penstock.store import Store
from penstock.testing.simulation import ManualClock
from tests.conformance.warm import Connections
from tests.servers.redis import Redis


class RedisEngine:
    lasting = True
    still = True

    def __init__(self, server: Redis) -> None:
        self.url = server.url()
        self.clock = ManualClock()
        self.outside = server.connect()
        self.outside.flushdb()

    async def open(self) -> Store:
        return await stores.open(self.url, clock=self.clock)

    @asynccontextmanager
    async def open_warm(self, connections: Connections) -> AsyncIterator[Store]:
        async with await self.open() as store:
            yield store

    async def travel(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def version(self) -> int | None:
        """How many keys the server has changed."""
        return int(self.outside.info("persistence")["rdb_changes_since_last_save"])

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """There are none to hold."""
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A script is over before another one begins."""
        yield

    @contextmanager
    def caller(self) -> Iterator[Any]:
        pytest.skip("Redis has no transactions of callers")

    def close(self) -> None:
        self.outside.close()
