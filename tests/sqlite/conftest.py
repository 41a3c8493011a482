"""A file for a store, the store in it, and a child process beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.stores.sqlite.store import SqliteStore
from tests.sqlite.children import Child, children
from tests.sqlite.scenes import open_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with await open_file(path) as store:
        yield store


@pytest.fixture
async def child() -> AsyncIterator[Child]:
    async with children(1) as started:
        yield started[0]
