"""A store in memory: no thread, no file, and nobody else's."""

import threading
from pathlib import Path

import pytest

from penstock import stores
from penstock.errors import StoreClosed
from penstock.model.store_types import Completion
from penstock.store import Store
from penstock.stores.sqlite.store import open_sqlite
from penstock.stores.sqlite.transaction import SqliteTransaction
from tests.sqlite.scenes import claim, names, places, publish

pytestmark = pytest.mark.anyio

URLS = ("sqlite://", "sqlite:///:memory:")


async def live(store: Store) -> None:
    """Every way of working: a write, a look, a long read."""
    await publish(store)
    (leased,) = await claim(store)
    await store.complete([Completion(leased.id, leased.fence)])
    assert await store.get(leased.id) is not None
    assert await places(store) == {"message": 1, "ended": 1}


@pytest.mark.parametrize("url", URLS)
async def test_it_needs_no_thread_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = set(threading.enumerate())
    async with await stores.open(url) as store:
        await live(store)
        assert set(threading.enumerate()) == threads
    assert names(tmp_path) == set()


async def thread_of(tx: SqliteTransaction) -> int:
    return threading.get_ident()


async def test_work_is_done_on_the_callers_own_thread() -> None:
    async with await open_sqlite("") as store:
        here = threading.get_ident()
        assert await store.database.write(thread_of) == here
        assert await store.database.look(thread_of) == here
        assert await store.database.read(thread_of) == here


@pytest.mark.parametrize("url", URLS)
async def test_two_stores_in_memory_share_nothing(url: str) -> None:
    async with await stores.open(url) as one, await stores.open(url) as other:
        await publish(one, 3)
        assert await places(one) == {"message": 3, "ready": 3}
        assert await places(other) == {}
        assert await publish(other) == [1]


async def test_it_ends_when_it_is_closed() -> None:
    async with await stores.open("sqlite://") as store:
        await publish(store)
    async with await stores.open("sqlite://") as store:
        assert await places(store) == {}


async def test_a_failed_job_leaves_nothing_behind() -> None:
    async def fail(tx: SqliteTransaction) -> None:
        await tx.run("fact_set", name="bad", value="job")
        raise ValueError("no good")

    async with await open_sqlite("") as store:
        with pytest.raises(ValueError, match="no good"):
            await store.database.write(fail)
        assert await store.database.look(SqliteTransaction.one, "fact", name="bad") is None
        await live(store)


async def test_a_closed_one_says_that_it_is_closed() -> None:
    store = await open_sqlite("")
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed, match=":memory:"):
        await publish(store)
    with pytest.raises(StoreClosed, match=":memory:"):
        await store.enqueue([])
    with pytest.raises(StoreClosed, match=":memory:"):
        await store.census()
