"""Every place keeps files alike."""

from pathlib import Path

import pytest

from penstock.artifacts.rules import Artifact, DeliveryPrefix, MessagePrefix
from penstock.artifacts.storage import ArtifactStorage, default_location, open_storage
from penstock.artifacts.upload import Upload
from penstock.errors import BodyTooLarge, InvalidInput, StoreUnreachable
from tests.artifacts.conftest import Shared
from tests.artifacts.scenes import SHELF, keep, read

OTHER = DeliveryPrefix("default", 7, 4)


def test_what_is_kept_is_read_and_listed(place: ArtifactStorage) -> None:
    keep(place, name="b.bin", content=bytes(range(256)))
    keep(place, name="a.txt", content=b"")
    assert place.files(SHELF) == [Artifact("a.txt", 0), Artifact("b.bin", 256)]
    assert read(place, name="b.bin") == bytes(range(256))
    assert read(place, name="a.txt") == b""


def test_a_file_that_goes_in_parts_is_whole(place: ArtifactStorage, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * 26_000)
    keep(place, content=path)
    assert read(place) == path.read_bytes()


def test_what_is_not_there_is_nothing(place: ArtifactStorage) -> None:
    assert (place.files(SHELF), read(place), place.owners(None, 9)) == ([], None, [])
    assert place.delivery_folders(MessagePrefix("default", 7)) == []
    place.remove(SHELF, "a.txt")
    place.clear(SHELF)
    assert place.tidy(0) == 0


def test_an_upload_is_seen_by_nobody_until_it_is_kept(place: ArtifactStorage) -> None:
    upload = Upload("a.txt", place.begin(), 10)
    upload.fill(b"half")
    assert (place.files(SHELF), place.owners(None, 9)) == ([], [])
    upload.discard()
    assert not upload.path.exists()


def test_an_upload_has_a_limit(place: ArtifactStorage) -> None:
    upload = Upload("a.txt", place.begin(), 10)
    upload.write(b"0123456789")
    with pytest.raises(BodyTooLarge, match="more than 10 bytes"):
        upload.write(b"0")
    upload.discard()


def test_the_same_name_takes_the_place_of_the_old(place: ArtifactStorage) -> None:
    keep(place, content=b"a longer one")
    keep(place, content=b"new")
    assert (read(place), place.files(SHELF)) == (b"new", [Artifact("a.txt", 3)])


def test_shelves_are_apart(place: ArtifactStorage) -> None:
    keep(place, content=b"three")
    keep(place, OTHER, content=b"four")
    assert (read(place), read(place, OTHER)) == (b"three", b"four")
    assert sorted(place.delivery_folders(MessagePrefix("default", 7))) == [SHELF, OTHER]
    place.clear(SHELF)
    assert (read(place), read(place, OTHER)) == (None, b"four")
    place.remove(OTHER, "a.txt")
    assert read(place, OTHER) is None


@pytest.mark.parametrize(
    "name", ["x" * 255, "é" * 127, "%2e%2e", "a#b?c&d", "a b'\"<>|*[1]{2}.txt", "-rf", "~", "統計"]
)
def test_any_plain_name_comes_back_as_it_was(place: ArtifactStorage, name: str) -> None:
    keep(place, name=name, content=b"here")
    assert place.files(SHELF) == [Artifact(name, 4)]
    assert read(place, name=name) == b"here"


def test_messages_that_have_files_are_told_page_by_page(place: ArtifactStorage) -> None:
    wanted = {MessagePrefix("default", id) for id in (1, 7, 70, 71, 8)} | {
        MessagePrefix("other", 9)
    }
    for owner in wanted:
        keep(place, DeliveryPrefix(owner.tenant, owner.id, 1))
        keep(place, DeliveryPrefix(owner.tenant, owner.id, 2), name="b")
    found: list[MessagePrefix] = []
    while page := place.owners(found[-1] if found else None, 2):
        assert len(page) <= 2
        found += page
    assert (len(found), set(found)) == (len(wanted), wanted)


def test_stores_may_share_a_place_and_see_nothing_of_each_other(shared: Shared) -> None:
    one, other = shared(bytes(32)), shared(b"x" * 32)
    keep(one)
    assert (other.files(SHELF), other.owners(None, 9), read(other)) == ([], [], None)
    other.clear(SHELF)
    assert read(one) == b"a"


def test_a_healthy_place_is_well(place: ArtifactStorage) -> None:
    keep(place)
    assert place.examine().ok


def test_a_bucket_that_is_away_is_an_error_of_its_own(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_storage(f"{bucket}-missing".replace("/some", "x/some"), bytes(32))
    with pytest.raises(StoreUnreachable, match="artifacts in s3://"):
        keep(place)
    assert not place.examine().ok


@pytest.mark.parametrize("where", ["ftp://host/x", "s3://key:word@bucket/x", "https://bucket/x"])
def test_a_place_is_a_directory_or_a_bucket(where: str) -> None:
    with pytest.raises(InvalidInput, match="artifacts") as refused:
        open_storage(where, bytes(32))
    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("sqlite:///penstock.db", "penstock.db.artifacts"),
        ("sqlite:////srv/q.db?durability=fast", "/srv/q.db.artifacts"),
        ("sqlite://", "penstock.db.artifacts"),
        ("postgresql://me:secret@db.example:5432/work", "penstock.db.example-5432-work.artifacts"),
    ],
)
def test_unsaid_the_place_is_beside_the_store(url: str, where: str) -> None:
    assert default_location(url) == where
