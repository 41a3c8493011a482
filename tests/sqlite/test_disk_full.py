"""On a full disk publishing stops early, settling goes on, and nothing is half done."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from penstock.broker.local import Broker
from penstock.errors import StoreFull
from penstock.model.message import Fail, Nack, Release, SettleReject
from penstock.model.store_types import Completion, Extension
from penstock.stores.sqlite.files import BALLAST_BYTES, RESERVE_BYTES
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.sqlite.transaction import SqliteTransaction
from tests.sqlite.busy import together
from tests.sqlite.children import CAP, Child
from tests.sqlite.scenes import claim, open_file, places, publish

pytestmark = pytest.mark.anyio

MEGABYTE = 1_048_576
SETTLEMENTS = (
    Nack("again", delay=0),
    Nack("later", delay=60),
    Fail("no"),
    SettleReject("no"),
    Release(),
)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A filesystem of 64 MB."""
    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", directory]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small filesystem is for root")
        try:
            yield Path(directory)
        finally:
            # Lazily: a process that is not quite dead may still have files there.
            subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.fixture
async def store(disk: Path) -> AsyncIterator[SqliteStore]:
    """A store with 5,000 messages on that disk."""
    async with await open_file(disk / "queue.db") as store:
        for _ in range(5):
            await publish(store, 1_000, b"x" * 500)
        yield store


def room(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def fill(disk: Path, left: int = 0) -> None:
    """Somebody else's file takes all but `left` bytes."""
    with open(disk / "big", "ab", buffering=0) as big:
        try:
            while room(disk) > left:
                big.write(bytes(min(MEGABYTE, room(disk) - left)))
        except OSError:
            assert room(disk) == 0


def free(disk: Path) -> None:
    (disk / "big").unlink()


def has_ballast(disk: Path) -> bool:
    return (disk / "queue.db.ballast").exists()


async def wait_until_refused(store: SqliteStore) -> None:
    """The room on the disk is looked at once a second; until then a publish may get in."""
    with anyio.fail_after(CAP):
        while True:
            try:
                await publish(store)
            except StoreFull:
                return
            await anyio.sleep(0.01)


async def wait_until_accepted(store: SqliteStore) -> None:
    with anyio.fail_after(CAP):
        while True:
            try:
                await publish(store)
            except StoreFull:
                await anyio.sleep(0.01)
            else:
                return


async def test_publishing_stops_before_the_disk_is_full(store: SqliteStore, disk: Path) -> None:
    fill(disk, RESERVE_BYTES - MEGABYTE)
    await wait_until_refused(store)
    assert has_ballast(disk)
    assert room(disk) > RESERVE_BYTES // 2
    before = await places(store)
    with pytest.raises(
        StoreFull, match="publishing is stopped, settling continues; free some space"
    ):
        await publish(store, 10)
    assert await places(store) == before


async def test_publishing_goes_on_when_there_is_room_again(store: SqliteStore, disk: Path) -> None:
    fill(disk)
    await wait_until_refused(store)
    free(disk)
    await wait_until_accepted(store)


async def test_messages_are_completed_on_a_full_disk(store: SqliteStore, disk: Path) -> None:
    leased = await claim(store)
    fill(disk)
    result = b"y" * 2_000
    answers = await store.complete([Completion(each.id, each.fence, result) for each in leased])
    assert {answer.kind for answer in answers} == {"done"}
    assert not has_ballast(disk)
    assert (await places(store))["ended"] == len(leased)
    assert await store.result(leased[-1].id) == result


async def test_every_settlement_works_on_a_full_disk(store: SqliteStore, disk: Path) -> None:
    broker = Broker(store)
    leased = (await broker.claim("default", consumer="tester", limit=1_000)).messages
    fill(disk)
    asked = [(each, SETTLEMENTS[number % 5]) for number, each in enumerate(leased)]
    answers = await broker.settle_many(asked)
    assert {answer.kind for answer in answers} == {"done"}
    held = (await claim(store, 1))[0]
    (extended,) = await store.extend([Extension(held.id, held.fence, 60)])
    assert extended.kind == "done"


async def test_ballast_comes_back_when_there_is_room_again(store: SqliteStore, disk: Path) -> None:
    leased = await claim(store)
    fill(disk)
    await store.complete([Completion(each.id, each.fence, b"y" * 2_000) for each in leased])
    assert not has_ballast(disk)
    free(disk)
    with anyio.fail_after(CAP):
        while not has_ballast(disk):
            await wait_until_accepted(store)
    assert (disk / "queue.db.ballast").stat().st_blocks * 512 >= BALLAST_BYTES


async def test_a_job_too_large_for_the_disk_fails_whole_and_alone(
    store: SqliteStore, disk: Path
) -> None:
    async def write_too_much(tx: SqliteTransaction) -> None:
        for number in range(100):
            await tx.run("fact_set", name=f"large {number}", value="z" * MEGABYTE)

    (leased,) = await claim(store, 1)
    fill(disk)
    failed, (answer,) = await together(
        store,
        store.database.write(write_too_much),
        store.complete([Completion(leased.id, leased.fence)]),
    )
    assert isinstance(failed, StoreFull)
    assert await store.database.look(SqliteTransaction.one, "fact", name="large 0") is None
    assert answer.kind == "done"
    assert await places(store) == {"message": 5_000, "ready": 4_999, "ended": 1}


async def test_a_disk_too_small_for_ballast_still_serves(disk: Path) -> None:
    fill(disk, RESERVE_BYTES + 8 * MEGABYTE)
    async with await open_file(disk / "queue.db") as store:
        assert not has_ballast(disk)
        assert await publish(store) == [1]


async def test_a_store_is_not_made_on_a_full_disk(disk: Path) -> None:
    fill(disk)
    with pytest.raises(StoreFull, match=r"queue\.db.* is full; free some space"):
        await open_file(disk / "queue.db")
    free(disk)
    async with await open_file(disk / "queue.db") as store:
        assert await publish(store) == [1]


async def test_a_store_can_be_opened_on_a_full_disk_to_settle(disk: Path, child: Child) -> None:
    url = f"sqlite:///{disk / 'queue.db'}"
    async with await open_file(disk / "queue.db") as store:
        await publish(store, 10)
    fill(disk)
    assert await child.ask("open", url) == "open"
    assert await child.ask("claim") == "1 2 3 4 5 6 7 8 9 10"


async def test_a_burst_does_not_outrun_the_reserve(disk: Path) -> None:
    fill(disk, 28 * MEGABYTE)
    async with await open_file(disk / "queue.db") as store:
        with anyio.fail_after(CAP):
            await fill_up(store)
        assert room(disk) > 8 * MEGABYTE
        with pytest.raises(StoreFull):
            await publish(store, 400, b"x" * 50_000)
        assert room(disk) > 8 * MEGABYTE


async def fill_up(store: SqliteStore) -> None:
    """Publishes until it is refused."""
    while True:
        try:
            await publish(store, 1, b"x" * 50_000)
        except StoreFull:
            return
