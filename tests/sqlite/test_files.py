"""Where a store's files may lie, who may read them, and what is refused as a store."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import stores
from penstock.errors import InvalidInput, PenstockError, StoreTooNew, StoreUnusable
from penstock.model.message import After, Flag
from penstock.model.store_types import Completion, Entry
from penstock.stores.sqlite import files
from penstock.stores.sqlite.connection import SCHEMA
from penstock.stores.sqlite.files import NETWORK, StoreFiles, find_filesystem
from penstock.stores.sqlite.store import SqliteStore
from tests.sqlite.children import Child
from tests.sqlite.scenes import (
    claim,
    default_queue,
    names,
    open_file,
    places,
    publish,
    read,
    write,
)

pytestmark = pytest.mark.anyio

BESIDE = ("", "-wal", "-shm", ".lock", ".wake", ".ballast")
BAD_URLS = (
    "", "queue.db", "/tmp/queue.db", "mongodb://localhost/queue", "sqlite://host/queue.db",
    "sqlite://queue.db", "sqlite:///queue.db?durability=none", "sqlite:///queue.db?durability=",
    "sqlite:///queue.db?colour=blue", "sqlite:///queue.db?colour", "sqlite:///queue.db#1",
)  # fmt: skip

NEWER = f"INSERT INTO penstock_migration VALUES ({SCHEMA + 1}, 'later', 'abc', {SCHEMA + 1}, 0)"


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """One that everybody may enter, whoever runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def change(path: Path, *statements: str) -> None:
    """From outside, as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize("umask", ["000", "022", "077"])
async def test_only_the_owner_may_read_a_stores_files(child: Child, path: Path, umask: str) -> None:
    await child.ask("umask", umask)
    assert await child.ask("open", f"sqlite:///{path}") == "open"
    await child.ask("publish")
    modes = {end: os.stat(f"{path}{end}").st_mode & 0o777 for end in BESIDE}
    assert modes == dict.fromkeys(BESIDE, 0o600)


async def test_a_store_makes_no_other_files(store: SqliteStore, path: Path) -> None:
    await publish(store)
    assert names(path.parent) == {path.name + end for end in BESIDE}


async def test_a_missing_directory_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"no directory .*/missing"):
        await open_file(tmp_path / "missing" / "queue.db")
    assert names(tmp_path) == set()


async def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="not a regular file"):
        await open_file(tmp_path)


async def test_a_pipe_is_no_store(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreUnusable, match="not a regular file"):
        await open_file(path)


async def test_a_directory_that_may_not_be_written_is_named(
    child: Child, public_directory: Path
) -> None:
    path = public_directory / "queue.db"
    os.chmod(public_directory, 0o555)
    await child.ask("become_nobody")
    answer = await child.ask("open", f"sqlite:///{path}")
    assert answer == f"STORE_UNUSABLE cannot write {str(path)!r}: Permission denied"


async def test_a_store_of_another_user_is_named(child: Child, public_directory: Path) -> None:
    path = public_directory / "queue.db"
    await (await open_file(path)).close()
    if os.geteuid() != 0:
        os.chmod(path, 0o400)
    await child.ask("become_nobody")
    answer = await child.ask("open", f"sqlite:///{path}")
    assert answer == f"STORE_UNUSABLE cannot write {str(path)!r}: Permission denied"


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    write(path, b"")
    async with await open_file(path) as store:
        await publish(store)
        assert await places(store) == {"message": 1, "ready": 1}


async def test_random_bytes_are_not_taken_for_a_store(path: Path) -> None:
    write(path, content := os.urandom(8192))
    with pytest.raises(StoreUnusable, match=r"queue\.db.*not a database; check its disk"):
        await open_file(path)
    assert read(path) == content


@pytest.mark.parametrize("left", [0.01, 0.25, 0.5, 0.99])
async def test_a_truncated_store_is_refused(path: Path, left: float) -> None:
    async with await open_file(path) as store:
        await publish(store, 200, b"x" * 500)
    pages = len(read(path)) // 4096
    os.truncate(path, max(1, int(left * pages)) * 4096)
    with pytest.raises(StoreUnusable, match=r"queue\.db.*malformed; check its disk"):
        await open_file(path)


async def test_a_store_that_a_newer_penstock_needs_is_not_opened(path: Path) -> None:
    await (await open_file(path)).close()
    change(path, NEWER)
    with pytest.raises(StoreTooNew, match=rf"queue\.db.*{SCHEMA + 1}.*upgrade Penstock"):
        await open_file(path)


async def test_a_running_process_stops_writing_when_a_newer_one_migrates(
    store: SqliteStore, path: Path
) -> None:
    await publish(store)
    change(path, NEWER)
    with pytest.raises(StoreTooNew, match="upgrade and restart"):
        await publish(store)
    assert await places(store) == {"message": 1, "ready": 1}
    change(path, "DELETE FROM penstock_migration WHERE name = 'later'")
    assert await publish(store) == [2]


async def test_an_edited_migration_is_refused(path: Path) -> None:
    await (await open_file(path)).close()
    change(path, "UPDATE penstock_migration SET checksum = 'edited' WHERE number = 1")
    with pytest.raises(StoreUnusable, match=r"queue\.db.*migration 1 \(core\)") as refused:
        await open_file(path)
    assert not isinstance(refused.value, StoreTooNew)


async def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(StoreUnusable, match=r"needs 3\.38 or newer"):
        await open_file(path)
    assert names(path.parent) == set()


def test_the_oldest_sqlite_is_the_one_whose_words_the_statements_use() -> None:
    # 3.38 brought the arrows into JSON; RETURNING is older.
    assert files.MIN_VERSION == (3, 38, 0)


def make_mounts(path: Path, kind: str) -> str:
    """A table of mounts that says so of the filesystem a path really lies on."""
    device = os.stat(path).st_dev
    return (
        "21 1 254:99 / / rw,relatime - ext4 /dev/root rw\n"
        f"36 21 {os.major(device)}:{os.minor(device)} / {path} rw shared:1 master:2"
        f" - {kind} server:/export rw\n"
    )


@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_a_network_filesystem_is_refused(tmp_path: Path, path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(make_mounts(tmp_path, kind))
    with pytest.raises(StoreUnusable, match=rf"network filesystem \({kind}\)"):
        StoreFiles(str(path), mounts=str(mounts)).prepare()
    assert not path.exists()


def test_a_local_filesystem_is_not_refused(tmp_path: Path, path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(make_mounts(tmp_path, "xfs"))
    StoreFiles(str(path), mounts=str(mounts)).prepare()
    assert path.exists()


def test_the_filesystem_is_unknown_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    assert find_filesystem(str(tmp_path), str(tmp_path / "no-mountinfo")) == ""


@pytest.mark.skipif(not os.path.exists("/proc/self/mountinfo"), reason="no table of mounts")
def test_the_kernels_table_of_mounts_can_be_read() -> None:
    assert find_filesystem("/proc") == "proc"


@pytest.mark.parametrize("url", BAD_URLS)
async def test_a_bad_url_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="store url"):
        await stores.open(url)
    assert names(tmp_path) == set()


async def test_a_relative_url_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await stores.open("sqlite:///queue.db"):
        assert (tmp_path / "queue.db").exists()


async def test_every_refusal_names_its_file(path: Path) -> None:
    write(path, b"SQLite format 3\0" + bytes(4080))
    with pytest.raises(PenstockError, match=r"queue\.db"):
        await open_file(path)


async def test_a_folder_that_vanishes_under_a_store_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    async with await open_file(folder / "queue.db") as store:
        await publish(store)
        assert store.database.files is not None
        store.database.files.room_checked = 0.0
        folder.rename(tmp_path / "moved")
        with pytest.raises(StoreUnusable, match="is gone"):
            await publish(store)
        (tmp_path / "moved").rename(folder)
        await publish(store)


@pytest.mark.parametrize(
    ("torn", "found"),
    [
        ("DELETE FROM penstock_hold", "1 waiting messages without a hold"),
        ("DELETE FROM penstock_scheduled", "1 holds without a message"),
        ("DELETE FROM penstock_nudge", "1 waiting messages that missed an end"),
    ],
)
async def test_doctor_finds_a_torn_wait(path: Path, torn: str, found: str) -> None:
    store = await open_file(path)
    queue = await default_queue(store)
    plain = Entry(queue.id, "test", b"")
    last = Entry(queue.id, "test", b"", flags=Flag.HELD, after=After(entries=(0,)))
    await store.enqueue([plain, last], atomic=True)
    (leased,) = await claim(store)
    await store.complete([Completion(leased.id, leased.fence)])
    change(path, torn)
    (waits,) = [check for check in await store.examine() if check.name == "waits"]
    assert (waits.ok, found in waits.text) == (False, True), waits.text
    await store.close()
