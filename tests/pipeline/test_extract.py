"""What a driver of extracts does around Spark: nothing lost, nothing doubled, clear words."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.parquet as parquet
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput, InvalidState, NotYet
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.extract import ExtractResult, extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.local import LocalLakeFiles
from penstock.pipeline.lake.manifest import encode
from penstock.pipeline.lake.schema import MESSAGE, VERSION, VERSION_KEY
from tests.extent import ALL
from tests.pipeline.scenes import (
    InProcess,
    Tasks,
    agrees,
    files,
    in_process,
    on,
    publish,
    read_column,
)

EVERY = "1" if ALL else "4"


def run(url: str, lake: Path, batch: int = 1_000) -> ExtractResult:
    return extract(in_process(), url, str(lake), batch=batch)


def manifest_of(lake: Path, number: int) -> Path:
    return lake / "_manifest" / f"{number:010}-{number:010}.json"


def test_an_extract_brings_every_row_once(url: str, lake: Path) -> None:
    assert run(url, lake) == ExtractResult(1, 30, 20, Cursor(0, 30, 20))
    assert agrees(url, lake)


def test_the_next_extract_brings_what_is_new(url: str, lake: Path) -> None:
    run(url, lake)
    publish(url, 5)
    done = run(url, lake)
    assert (done.batches, done.messages, done.history) == (1, 5, 0)
    assert run(url, lake).batches == 0
    assert agrees(url, lake)


def test_much_is_brought_in_several_batches(url: str, lake: Path) -> None:
    assert run(url, lake, batch=7).batches == 5
    assert agrees(url, lake)


def test_the_store_knows_how_far_the_lake_is(url: str, lake: Path) -> None:
    done = run(url, lake)
    cursors = on(url, lambda broker: broker.store.cursors())
    assert [each.cursor for each in cursors.values()] == [done.cursor]


def test_an_empty_store_makes_an_empty_lake(tmp_path: Path, lake: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    on(url, lambda broker: broker.store.now())
    assert run(url, lake) == ExtractResult(0, 0, 0, Cursor())
    assert read_column(lake, "message", "id") == []


def test_a_driver_killed_at_every_step_loses_and_doubles_nothing(url: str, lake: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.killing", url, str(lake), EVERY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) >= 5


def test_two_extracts_at_once_do_not_meet(url: str, lake: Path) -> None:
    run(url, lake)
    with (
        LocalLakeFiles(lake).hold(),
        pytest.raises(InvalidState, match="is locked by another process"),
    ):
        run(url, lake)


def test_a_batch_is_published_once_even_without_a_lock(url: str, lake: Path) -> None:
    run(url, lake)
    place = lakes.find(str(lake))
    with pytest.raises(InvalidState, match="another process wrote batch 1"):
        place.publish(place.manifests()[0])


def test_a_half_written_batch_is_swept_away(url: str, lake: Path) -> None:
    run(url, lake)
    half = lake / "message" / "batch=0000000002" / "part-00000-dead.parquet"
    half.parent.mkdir()
    half.write_bytes(b"PAR1")
    publish(url, 1)
    run(url, lake)
    assert (half.exists(), agrees(url, lake)) == (False, True)


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_torn_manifest_is_named(url: str, lake: Path, cut: int) -> None:
    run(url, lake)
    path = manifest_of(lake, 1)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InvalidState, match=r"0000000001-0000000001.json' is damaged"):
        run(url, lake)


def test_an_edited_manifest_is_noticed(url: str, lake: Path) -> None:
    run(url, lake)
    path = manifest_of(lake, 1)
    path.write_bytes(path.read_bytes().replace(b'"rows":30', b'"rows":29'))
    with pytest.raises(InvalidState, match="damaged or was edited"):
        run(url, lake)


def test_a_lake_of_another_store_is_refused(url: str, lake: Path, tmp_path: Path) -> None:
    run(url, lake)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    publish(other, 1)
    with pytest.raises(InvalidState, match="belongs to another store"):
        run(other, lake)


def test_a_lake_of_a_newer_schema_is_refused(url: str, lake: Path) -> None:
    run(url, lake)
    place = lakes.find(str(lake))
    newer = replace(place.manifests()[0], schema=VERSION + 1)
    manifest_of(lake, 1).write_bytes(encode(newer))
    said = f"has schema {VERSION + 1} and this Penstock supports up to {VERSION}"
    with pytest.raises(InvalidState, match=said):
        run(url, lake)


def test_a_directory_that_is_no_lake_is_left_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match=r"not a lake and not empty; it contains letter.txt"):
        run(url, tmp_path / "home")


def test_a_lake_whose_making_was_cut_short_is_made(url: str, lake: Path) -> None:
    drafts = [lake / ".draft-1", lake / "_manifest/.draft-2", lake / "message/_delta_log/.draft-3"]
    for draft in drafts:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(b"{")
    assert run(url, lake).messages == 30
    assert not any(draft.exists() for draft in drafts)


def test_a_lake_that_cannot_be_written_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write the lake"):
        run(url, tmp_path / "file" / "lake")


def test_a_log_that_cannot_be_written_is_named(url: str, lake: Path) -> None:
    run(url, lake)
    shutil.rmtree(lake / "message")
    (lake / "message").write_text("in the way")
    with pytest.raises(InvalidInput, match=r"cannot write the lake .*: Not a directory"):
        run(url, lake)


def test_a_lake_in_a_place_of_another_kind_is_not_built_yet(url: str) -> None:
    with pytest.raises(NotYet, match="gs:// is not supported"):
        extract(in_process(), url, "gs://bucket/lake")


@pytest.mark.parametrize("more", [0, 10])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_store_that_went_back_in_time_is_refused(
    url: str, lake: Path, tmp_path: Path, batches: int, more: int
) -> None:
    """Also if it has come as far again since, with other messages under the same numbers."""
    if batches == 2:
        run(url, lake)
    publish(url, 1)
    on(url, lambda broker: broker.store.backup(str(tmp_path / "backup.db")))
    publish(url, 5)
    run(url, lake)
    restored = f"sqlite:///{tmp_path / 'backup.db'}"
    publish(restored, more)
    with pytest.raises(InvalidState, match="the store is older than lake"):
        run(restored, lake)


def test_a_lake_that_lost_its_last_batch_is_refused(url: str, lake: Path) -> None:
    run(url, lake)
    publish(url, 1)
    run(url, lake)
    manifest_of(lake, 2).unlink()
    with pytest.raises(InvalidState, match="lost batches"):
        run(url, lake)


def test_a_lake_that_lost_a_batch_between_is_refused(url: str, lake: Path) -> None:
    run(url, lake, batch=10)
    manifest_of(lake, 2).unlink()
    with pytest.raises(InvalidState, match="none of batch 2"):
        run(url, lake)


def test_retention_waits_for_the_lake(url: str, lake: Path) -> None:
    """The cursor is there before the first row is read."""
    seen: list[int] = []

    class Looking(InProcess):
        def parallelize(self, items: Sequence[Any], slices: int) -> Tasks:
            seen.append(len(on(url, lambda broker: broker.store.cursors())))
            return super().parallelize(items, slices)

    extract(cast(SparkSession, Looking()), url, str(lake))
    assert seen == [1]


def test_every_file_says_its_schema_and_keeps_bodies_as_they_were(url: str, lake: Path) -> None:
    run(url, lake)
    (path,) = files(lake, "message")
    table = parquet.read_table(path)
    assert table.schema.metadata[VERSION_KEY] == str(VERSION).encode()
    assert set(table.column("body").to_pylist()) == {b'{"n":1}', b"not JSON", b"\xff\x00", b""}
    assert table.schema.remove_metadata() == MESSAGE


def test_a_lake_is_found_by_a_file_url(url: str, lake: Path) -> None:
    extract(in_process(), url, f"file://{lake}")
    assert agrees(url, lake)


def test_a_label_that_is_torn_is_named(url: str, lake: Path) -> None:
    run(url, lake)
    (lake / "lake.json").write_bytes(msgspec.json.encode({"schema": 1}))
    with pytest.raises(InvalidState, match=r"lake.json' is damaged"):
        run(url, lake)


def test_a_copied_lake_has_the_same_rows(url: str, lake: Path, tmp_path: Path) -> None:
    run(url, lake)
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    assert agrees(url, copy)
