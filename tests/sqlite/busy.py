"""A writer that is held up, so that what is asked of it meanwhile goes in together."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.sqlite.transaction import SqliteTransaction
from tests.sqlite.children import CAP


@asynccontextmanager
async def hold_writer(store: SqliteStore) -> AsyncIterator[None]:
    """The writer is in the middle of a job; what is asked meanwhile goes in together, after."""
    inside, go_on = threading.Event(), threading.Event()

    async def wait(tx: SqliteTransaction) -> None:
        inside.set()
        assert go_on.wait(CAP)

    waiting = asyncio.ensure_future(store.database.write(wait))
    try:
        assert await asyncio.to_thread(inside.wait, CAP)
        yield
    finally:
        go_on.set()
    await waiting


async def together(store: SqliteStore, *calls: Awaitable[Any]) -> list[Any]:
    """The results of calls that wait for the writer at the same time."""
    async with hold_writer(store):
        tasks = [asyncio.ensure_future(call) for call in calls]
        await all_waiting()
    with anyio.fail_after(CAP):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def all_waiting() -> None:
    """Every task that could run has run."""
    for _ in range(10):
        await asyncio.sleep(0)
