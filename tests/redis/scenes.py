"""What tests of the Redis store begin with."""

from collections.abc import Awaitable, Callable

import anyio

from penstock import stores
from penstock.errors import StoreError
from penstock.model.message import Leased
from penstock.model.store_types import Claim, Entry
from penstock.store import Store
from penstock.stores.redis.store import RedisStore

# The default queue of a new store. Nothing is asked that a test does not ask.
QUEUE = 2
CAP = 60.0


async def open_store(url: str) -> RedisStore:
    store = await stores.open(url)
    assert isinstance(store, RedisStore)
    return store


async def publish(store: Store, count: int = 1, body: bytes = b"") -> list[int]:
    published = await store.enqueue([Entry(QUEUE, "test", body) for _ in range(count)])
    return [each.id for each in published]


async def claim(store: Store, limit: int = 1_000, lease: float = 30.0) -> list[Leased]:
    return (await store.claim(Claim((QUEUE,), "tester", limit, lease))).messages


async def places(store: Store) -> dict[str, int]:
    """How many messages of the default queue are in each place."""
    return {each.place: each.count for each in await store.census() if each.queue_id == QUEUE}


async def soon(work: Callable[[], Awaitable[object]]) -> None:
    """It works again by itself, whatever was said on the way."""
    with anyio.fail_after(CAP):
        while True:
            try:
                await work()
                return
            except StoreError:
                await anyio.sleep(0.01)
