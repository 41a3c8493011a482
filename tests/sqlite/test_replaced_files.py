"""A store whose files were removed or replaced accepts nothing: it would be lost."""

import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import StoreUnusable
from penstock.model.message import Leased
from penstock.model.store_types import Completion, Entry, Extension
from penstock.stores.sqlite.store import SqliteStore
from tests.conformance.stage import refusal
from tests.sqlite.children import Child
from tests.sqlite.scenes import claim, default_queue, names, open_file, places, publish

pytestmark = pytest.mark.anyio
ALL = ("", "-wal", "-shm")
GONE = "STORE_UNUSABLE"


@pytest.fixture
async def held(store: SqliteStore) -> Leased:
    """A message in hand, from a store with one more ready."""
    await publish(store, 2)
    (leased,) = await claim(store, 1)
    return leased


def remove(path: Path, *ends: str) -> None:
    for end in ends:
        os.unlink(f"{path}{end}")


def fork() -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def look_again(store: SqliteStore) -> None:
    """As if a second had passed since the files were looked at."""
    assert store.database.files is not None
    store.database.files.identity_due = 0.0


async def test_nothing_is_acknowledged_into_a_file_without_a_name(
    store: SqliteStore, held: Leased, path: Path
) -> None:
    entry = Entry((await default_queue(store)).id, "test", b"")
    remove(path, "")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([entry]),
        lambda: store.complete([Completion(held.id, held.fence)]),
        lambda: store.extend([Extension(held.id, held.fence, 30.0)]),
        lambda: claim(store),
        store.census,
        lambda: store.get(held.id),
    ]
    assert [await refusal(call()) for call in calls] == [GONE] * len(calls)


async def test_a_second_store_of_the_same_name_is_never_shared_with_the_first(
    store: SqliteStore, held: Leased, path: Path, child: Child
) -> None:
    remove(path, *ALL)
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    assert await child.ask("publish") == "1"
    with pytest.raises(StoreUnusable, match="removed or replaced"):
        await publish(store)
    await store.close()
    assert await child.ask("publish") == "2"
    await child.kill()
    async with await open_file(path) as again:
        assert await places(again) == {"message": 2, "ready": 2}


async def test_a_restore_under_a_running_process_stops_it(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await publish(store)
    await store.backup(str(tmp_path / "copy.db"))
    await publish(store)
    os.replace(tmp_path / "copy.db", path)
    with pytest.raises(StoreUnusable, match="restart this process"):
        await publish(store)


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_store_without_its_log_is_refused_within_a_second(
    store: SqliteStore, held: Leased, path: Path, end: str
) -> None:
    remove(path, end)
    look_again(store)
    assert await refusal(publish(store)) == GONE
    assert await refusal(store.get(held.id)) == GONE


async def test_what_was_acknowledged_before_is_there_when_the_log_was_removed(
    store: SqliteStore, held: Leased, path: Path
) -> None:
    remove(path, "-wal")
    look_again(store)
    assert await refusal(publish(store)) == GONE
    await store.close()
    async with await open_file(path) as again:
        assert await places(again) == {"message": 2, "ready": 1, "lease": 1}


async def test_a_store_goes_on_when_the_same_files_are_back(
    store: SqliteStore, held: Leased, path: Path, tmp_path: Path
) -> None:
    for end in ALL:
        os.rename(f"{path}{end}", f"{tmp_path}/away{end}")
    assert await refusal(publish(store)) == GONE
    for end in ALL:
        os.rename(f"{tmp_path}/away{end}", f"{path}{end}")
    look_again(store)
    await store.complete([Completion(held.id, held.fence)])
    assert (await places(store))["ended"] == 1


async def test_a_transaction_of_the_caller_is_refused_too(store: SqliteStore, path: Path) -> None:
    entry = Entry((await default_queue(store)).id, "test", b"")
    shutil.copy(path, f"{path}.copy")
    with closing(sqlite3.connect(path)) as connection:
        os.replace(f"{path}.copy", path)
        with pytest.raises(StoreUnusable, match="removed or replaced"):
            store.enqueue_on(connection, [entry])


async def test_a_process_that_changes_its_directory_keeps_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_file(Path("queue.db")) as store:
        monkeypatch.chdir("/")
        look_again(store)
        assert store.database.files is not None
        store.database.files.check_identity()
        assert await refusal(store.census()) is None


async def test_a_fork_after_the_file_was_removed_makes_no_new_one(
    store: SqliteStore, held: Leased, path: Path
) -> None:
    remove(path, *ALL)
    fork()
    assert await refusal(publish(store)) == GONE
    assert path.name not in names(path.parent)
    await store.close()
