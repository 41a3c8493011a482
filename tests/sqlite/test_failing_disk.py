"""A disk that fails is reported as such: the file on it may be intact."""

import fcntl
import os
import resource
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreUnusable
from tests.sqlite.children import Child
from tests.sqlite.scenes import claim, open_file, places, publish

pytestmark = pytest.mark.anyio
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
PAGE = 4096


def run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def cut_power(folder: Path) -> None:
    """From now on every call to the file system is an I/O error, until it is mounted again."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(file, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(file)


def spoil(path: Path, keep: int) -> None:
    """Garbage, from there to the end."""
    content = path.read_bytes()
    path.write_bytes(content[:keep] + os.urandom(len(content) - keep))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in an image, of its own."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    image.touch()
    os.truncate(image, 64 << 20)
    made = os.geteuid() == 0 and run("mkfs.ext4", "-q", "-F", str(image))
    if not made or not run("mount", "-o", "loop", str(image), str(folder)):
        pytest.skip("making and mounting a file system is for root")
    try:
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


async def test_a_file_system_that_answers_with_errors_is_not_a_damaged_file(disk: Path) -> None:
    store = await open_file(disk / "queue.db")
    await publish(store)
    cut_power(disk)
    for call in (publish(store), claim(store), store.census(), open_file(disk / "queue.db")):
        with pytest.raises(StoreUnusable, match=r"the disk of .*queue\.db. fails") as refused:
            await call
        assert "backup" not in str(refused.value)
    await store.close()


async def test_damage_seen_after_an_io_error_is_laid_to_the_disk(child: Child, path: Path) -> None:
    async with await open_file(path) as store:
        await publish(store, 2_000, b"x" * 500)
    await child.ask("open", f"sqlite:///{path}")
    await child.ask("limit_file_size", 1)
    assert (await child.ask("publish")).startswith("STORE_ERROR")
    await child.ask("limit_file_size", resource.RLIM_INFINITY)
    spoil(path, keep=4 * PAGE)
    answer = await child.ask("claim")
    assert answer.startswith("STORE_UNUSABLE the disk of")
    assert "backup" not in answer


async def test_a_damaged_file_on_a_healthy_disk_is_damaged(path: Path) -> None:
    async with await open_file(path) as store:
        await publish(store, 2_000, b"x" * 500)
        assert await places(store) == {"message": 2_000, "ready": 2_000}
    spoil(path, keep=0)
    with pytest.raises(StoreUnusable, match="check its disk, then restore a backup"):
        await open_file(path)
