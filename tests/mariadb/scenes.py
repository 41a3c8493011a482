"""What tests of the MariaDB store begin with."""

from collections.abc import Awaitable, Callable

import anyio

from penstock.model.message import Leased
from penstock.model.store_types import Claim, Entry
from penstock.store import Store
from penstock.stores.mariadb.connection import parse
from penstock.stores.mariadb.store import MariaStore, open_at

# The default queue of a new store. Nothing is asked that a test does not ask.
QUEUE = 2
CAP = 60.0


async def open_store(url: str, **options: object) -> MariaStore:
    words = "&".join(f"{name}={value}" for name, value in options.items())
    return await open_at(parse(f"{url}?{words}" if words else url))


async def publish(store: Store, count: int = 1) -> list[int]:
    published = await store.enqueue([Entry(QUEUE, "test", b"") for _ in range(count)])
    return [each.id for each in published]


async def claim(store: Store, limit: int = 1_000, consumer: str = "tester") -> list[Leased]:
    return (await store.claim(Claim((QUEUE,), consumer, limit))).messages


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(CAP):
        while True:
            if await holds():
                return
            await anyio.sleep(0.005)


async def wait_for(holds: Callable[[], bool]) -> None:
    async def held() -> bool:
        return holds()

    await wait_until(held)
