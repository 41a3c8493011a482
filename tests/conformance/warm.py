"""Keeps the connections of a test's first store for the next test of its module.

To open them takes a server longer than most tests.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from penstock.store import Store
from penstock.stores.mariadb.store import MariaStore
from penstock.stores.postgres.store import PostgresStore

# Idle connections by the kind of engine.
Connections: TypeAlias = dict[type[Any], list[Any]]


@asynccontextmanager
async def lend_connections(
    store: PostgresStore | MariaStore, connections: list[Any]
) -> AsyncIterator[Store]:
    idle: list[Any] = store.database.pool.idle
    async with store:
        idle += connections
        connections.clear()
        yield store
        connections += idle
        idle.clear()


def close_connections(connections: Connections) -> None:
    for each in connections.values():
        for connection in each:
            connection.terminate()
