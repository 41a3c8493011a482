"""A directory that somebody else may write to leads nowhere."""

import os
import stat
from pathlib import Path

import pytest

from penstock.artifacts.local import LocalArtifactStorage
from penstock.artifacts.rules import DeliveryPrefix
from penstock.artifacts.upload import Upload
from penstock.errors import StoreUnusable
from tests.artifacts.scenes import SHELF, keep, read

SECRET_FILE = b"not for everybody"


@pytest.fixture
def folder(tmp_path: Path) -> LocalArtifactStorage:
    made = LocalArtifactStorage(tmp_path / "files", "store")
    keep(made)
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that is none of ours, in a directory laid out like a shelf."""
    path = tmp_path / "outside" / "a.txt"
    path.parent.mkdir()
    path.write_bytes(SECRET_FILE)
    return path


def shelf_of(folder: LocalArtifactStorage) -> Path:
    return folder.root / "store" / "default" / "7" / "3"


def test_a_link_is_neither_listed_nor_followed(folder: LocalArtifactStorage, outside: Path) -> None:
    (shelf_of(folder) / "link").symlink_to(outside)
    assert [each.name for each in folder.files(SHELF)] == ["a.txt"]
    assert (read(folder, name="link"), read(folder)) == (None, b"a")


def test_a_file_with_another_name_elsewhere_is_not_ours(
    folder: LocalArtifactStorage, outside: Path
) -> None:
    (shelf_of(folder) / "hard").hardlink_to(outside)
    assert [each.name for each in folder.files(SHELF)] == ["a.txt"]
    assert (read(folder, name="hard"), read(folder)) == (None, b"a")


@pytest.mark.parametrize("level", ["3", "7", "default"])
def test_a_directory_that_was_swapped_for_a_link_is_not_gone_into(
    folder: LocalArtifactStorage, outside: Path, level: str
) -> None:
    swapped = next(folder.root.glob(f"**/{level}"))
    swapped.rename(outside.parent.parent / "aside")
    made = {"3": outside.parent, "7": outside.parent / "3", "default": outside.parent / "7" / "3"}
    made[level].mkdir(parents=True, exist_ok=True)
    (made[level] / "a.txt").write_bytes(SECRET_FILE)
    swapped.symlink_to(outside.parent)
    before = sorted(outside.parent.rglob("*"))
    assert (read(folder), folder.files(SHELF)) == (None, [])
    folder.clear(SHELF)
    folder.remove(SHELF, "a.txt")
    with pytest.raises(StoreUnusable):
        keep(folder)
    assert (made[level] / "a.txt").read_bytes() == SECRET_FILE
    assert sorted(outside.parent.rglob("*")) == before


def test_a_link_of_that_name_is_replaced_and_not_written_through(
    folder: LocalArtifactStorage, outside: Path
) -> None:
    (shelf_of(folder) / "link").symlink_to(outside)
    keep(folder, name="link", content=b"mine")
    assert (read(folder, name="link"), outside.read_bytes()) == (b"mine", SECRET_FILE)


def test_a_pipe_is_not_waited_for(folder: LocalArtifactStorage) -> None:
    os.mkfifo(shelf_of(folder) / "pipe")
    assert read(folder, name="pipe") is None


def test_nobody_else_may_read_what_is_kept(folder: LocalArtifactStorage) -> None:
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.root.rglob("*")}
    assert found.pop(shelf_of(folder) / "a.txt") == 0o600
    assert set(found.values()) == {0o700}
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700


def test_a_shelf_that_is_cleared_leaves_no_directory(folder: LocalArtifactStorage) -> None:
    keep(folder, DeliveryPrefix("default", 7, 9))
    folder.clear(SHELF)
    assert sorted(os.listdir(folder.root / "store" / "default" / "7")) == ["9"]
    folder.clear(DeliveryPrefix("default", 7, 9))
    assert os.listdir(folder.root / "store" / "default") == []


def test_an_upload_that_a_crash_cut_off_goes_after_a_day(folder: LocalArtifactStorage) -> None:
    old, young = (Upload("a", folder.begin(), 9) for _ in range(2))
    old.seal()
    young.seal()
    os.utime(old.path, (1, 1))
    assert folder.tidy(86_400) == 1
    assert [old.path.exists(), young.path.exists()] == [False, True]
    young.discard()


def test_an_archive_is_kept_as_it_is(folder: LocalArtifactStorage, tmp_path: Path) -> None:
    """Nothing is ever unpacked."""
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("../../evil")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    keep(folder, name="a.tar.gz", content=packed.getvalue())
    assert read(folder, name="a.tar.gz") == packed.getvalue()
    assert list(tmp_path.rglob("*evil*")) == []


def test_trouble_with_the_disk_is_trouble_with_the_store(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("in the way")
    folder = LocalArtifactStorage(tmp_path / "files", "store")
    with pytest.raises(StoreUnusable, match="artifacts in"):
        keep(folder)
    assert not folder.examine().ok
