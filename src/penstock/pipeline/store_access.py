"""A store, opened for one piece of work by a caller without an event loop."""

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
    """Reading must not make an empty store, as opening a file that is not there would."""
    path = get_file_path(url)
    if path == "":
        raise StoreUnusable("a store in memory is seen by its own process only; use a file")
    if path is not None and not os.path.exists(path):
        raise StoreUnusable(f"no store at {path!r}; it must be there for every machine that reads")


def make_absolute_url(url: str) -> str:
    """A file by its whole path: a task of Spark works in another directory."""
    path = get_file_path(url)
    if not path:
        return url
    return f"sqlite:///{os.path.abspath(path)}{''.join(url.partition('?')[1:])}"


def get_file_path(url: str) -> str | None:
    """Empty for a store in memory; None for one on a server."""
    return stores.parse_file(url)[0] if url.startswith("sqlite:") else None


async def make_identity(store: Store) -> str:
    """Tells one store from another, and says nothing of its secret."""
    return sha256(b"penstock lake " + await store.secret()).hexdigest()[:16]
