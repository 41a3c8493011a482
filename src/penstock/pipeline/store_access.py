"""Opens a store for one operation, for callers without an event loop."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeVar

from penstock import stores
from penstock.errors import StoreUnusable
from penstock.store import Store

T = TypeVar("T")


def use_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def main() -> T:
        async with await open_existing(url) as store:
            return await work(store)

    return asyncio.run(main())


async def open_existing(url: str) -> Store:
    refuse_new(url)
    return await stores.open(url)


def refuse_new(url: str) -> None:
    """Opening a missing SQLite file would create an empty store, so this raises instead."""
    path = get_file_path(url)
    if path == "":
        raise StoreUnusable("the pipeline cannot read an in-memory store; use a file")
    if path is not None and not os.path.exists(path):
        raise StoreUnusable(f"no store at {path!r}; every Spark machine needs access to the file")


def make_absolute_url(url: str) -> str:
    """Makes the path of a file absolute, because Spark tasks run in another directory."""
    path = get_file_path(url)
    if not path:
        return url
    return f"sqlite:///{os.path.abspath(path)}{''.join(url.partition('?')[1:])}"


def get_file_path(url: str) -> str | None:
    """Returns "" for an in-memory store and None for a server."""
    return stores.parse_file(url)[0] if url.startswith("sqlite:") else None


async def make_identity(store: Store) -> str:
    """Identifies a store without revealing its secret."""
    return sha256(b"penstock lake " + await store.secret()).hexdigest()[:16]
