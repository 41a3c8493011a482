"""Batches of keyed messages: few round trips, and nobody's open transaction breaks an order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from penstock.model.message import Flag, Leased
from penstock.model.store_types import Completion, Entry
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import CAP, QUEUE, claim, connect, open_store, places
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

BATCH = 200
LOCK_KEY = "SELECT pg_advisory_xact_lock(hashtextextended('penstock key 2 a', 0))"
LOCK_NEXT = "SELECT FROM penstock.scheduled WHERE key = 'a' ORDER BY position LIMIT 1 FOR UPDATE"
DELETE_NEXT = """
DELETE FROM penstock.scheduled
WHERE id = (SELECT min(id) FROM penstock.scheduled WHERE key = 'a')
"""


async def publish(store: PostgresStore, *keys: str) -> list[int]:
    entries = [Entry(QUEUE, "test", b"", ordering_key=key, flags=Flag.KEYED) for key in keys]
    published = await store.enqueue(entries)
    assert [each.code for each in published] == [None] * len(keys)
    return [each.id for each in published]


async def complete(store: PostgresStore, held: list[Leased]) -> list[str]:
    with anyio.fail_after(CAP):
        answers = await store.complete([Completion(each.id, each.fence) for each in held])
    return [answer.kind for answer in answers]


async def claim_ids(store: PostgresStore) -> list[int]:
    return [leased.id for leased in await claim(store)]


@asynccontextmanager
async def transaction(url: str, statement: str) -> AsyncIterator[asyncpg.Connection]:
    """Another client's, open until the end. It is rolled back if it is still open then."""
    async with connect(url, default_transaction_read_only="off") as connection:
        await connection.execute("BEGIN")
        await connection.execute(statement)
        yield connection
        await connection.execute("ROLLBACK")


async def test_a_keyed_batch_takes_few_round_trips(postgres_server: Postgres, url: str) -> None:
    async with (
        Proxy(postgres_server.port) as proxy,
        await open_store(proxy.url(url)) as store,
    ):
        proxy.requests = 0
        await publish(store, *map(str, range(BATCH)))
        held = await claim(store)
        assert await complete(store, held) == ["done"] * BATCH
        assert proxy.requests < BATCH / 2
        assert await places(store) == {"message": BATCH, "ended": BATCH}


async def test_a_key_in_use_is_busy_and_the_rest_of_the_batch_is_done(
    store: PostgresStore, url: str
) -> None:
    await publish(store, "a", "a", "b")
    held = await claim(store)
    async with transaction(url, LOCK_KEY):
        assert await complete(store, held) == ["busy", "done"]
    assert await complete(store, held[:1]) == ["done"]


async def test_a_next_that_is_locked_is_not_overtaken(store: PostgresStore, url: str) -> None:
    _, second, third, _, _ = await publish(store, "a", "a", "a", "b", "b")
    held = await claim(store)
    async with transaction(url, LOCK_NEXT):
        assert await complete(store, held) == ["busy", "done"]
    assert await complete(store, held[:1]) == ["done"]
    next_held = await claim(store)
    assert [leased.id for leased in next_held if leased.id in (second, third)] == [second]


async def test_a_next_that_leaves_the_line_is_passed_over(store: PostgresStore, url: str) -> None:
    _, _, third = await publish(store, "a", "a", "a")
    held = await claim(store)
    async with transaction(url, DELETE_NEXT) as other:
        assert await complete(store, held) == ["busy"]
        await other.execute("COMMIT")
        assert await complete(store, held) == ["done"]
        assert await claim_ids(store) == [third]
        await other.execute("BEGIN")
