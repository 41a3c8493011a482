"""What tests of the PostgreSQL store begin with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg

from penstock.model.message import Leased
from penstock.model.store_types import Claim, Entry
from penstock.store import Store
from penstock.stores.postgres import store as opening
from penstock.stores.postgres.store import PostgresStore

# The default queue of a new store. Nothing is asked that a test does not ask.
QUEUE = 2
CAP = 60.0


def with_options(url: str, **options: object) -> str:
    words = [f"{name}={value}" for name, value in options.items()]
    return "?".join((url, "&".join(words))) if words else url


async def open_store(url: str, **options: object) -> PostgresStore:
    return await opening.open_store(with_options(url, **options))


@asynccontextmanager
async def connect(url: str, **settings: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else's session."""
    connection = await asyncpg.connect(url, server_settings=settings, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(url: str, statement: str, *, write: bool = False) -> list[Any]:
    """What somebody else says, and is told."""
    settings = {"default_transaction_read_only": "off"} if write else {}
    async with connect(url, **settings) as connection:
        return await connection.fetch(statement)


async def publish(store: Store, count: int = 1, body: bytes = b"") -> list[int]:
    published = await store.enqueue([Entry(QUEUE, "test", body) for _ in range(count)])
    return [each.id for each in published]


async def claim(store: Store, limit: int = 1_000, consumer: str = "tester") -> list[Leased]:
    return (await store.claim(Claim((QUEUE,), consumer, limit))).messages


async def places(store: Store) -> dict[str, int]:
    """How many messages of the default queue are in each place."""
    return {each.place: each.count for each in await store.census() if each.queue_id == QUEUE}


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(CAP):
        while True:
            if await holds():
                return
            await anyio.sleep(0.005)
