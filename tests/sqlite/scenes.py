"""What tests of the SQLite store begin with."""

from pathlib import Path

from penstock.model.message import Leased
from penstock.model.queue import Queue
from penstock.model.store_types import Claim, Entry
from penstock.store import Store
from penstock.stores.sqlite.store import SqliteStore, open_sqlite


async def open_file(path: Path) -> SqliteStore:
    return await open_sqlite(str(path))


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


async def default_queue(store: Store) -> Queue:
    queue = await store.queue("default", "default", "default")
    assert queue is not None
    return queue


async def publish(store: Store, count: int = 1, body: bytes = b"") -> list[int]:
    queue = await default_queue(store)
    published = await store.enqueue([Entry(queue.id, "test", body) for _ in range(count)])
    return [each.id for each in published]


async def claim(store: Store, limit: int = 1_000) -> list[Leased]:
    queue = await default_queue(store)
    return (await store.claim(Claim((queue.id,), "tester", limit))).messages


async def places(store: Store) -> dict[str, int]:
    """How many messages of the default queue are in each place."""
    queue = await default_queue(store)
    return {each.place: each.count for each in await store.census() if each.queue_id == queue.id}
