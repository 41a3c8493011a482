"""Compaction merges small neighbours, and leaves rows, large files and results alone."""

from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidState
from penstock.model.anomalies import AnomalyThresholds
from penstock.pipeline.analytics.job import choose_usable
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.compact import LARGE_BYTES, CompactResult, compact, group_neighbours
from penstock.pipeline.lake.lake import make_manifest_name
from penstock.pipeline.lake.manifest import LakePart, encode
from penstock.pipeline.lake.result_tables import Results
from penstock.pipeline.lake.schema import Table
from tests.pipeline.scenes import agrees, consume, files, in_process, on, publish


def run(url: str, lake: Path, batch: int = 1_000) -> int:
    return extract(in_process(), url, str(lake), batch=batch).messages


def test_compaction_keeps_every_row_and_its_order(url: str, lake: Path) -> None:
    run(url, lake, batch=3)
    before = len(files(lake, "message"))
    done = compact(in_process(), str(lake))
    assert (done.batches, done.files, before) == (10, 2, 10)
    assert agrees(url, lake)
    publish(url, 4)
    consume(url, 3)
    assert run(url, lake) == 4
    assert agrees(url, lake)


def test_what_was_compacted_stays_until_the_next_time(url: str, lake: Path) -> None:
    run(url, lake, batch=10)
    old = files(lake, "message")
    compact(in_process(), str(lake))
    run(url, lake)
    assert all(path.exists() for path in old)
    assert compact(in_process(), str(lake)) == CompactResult(0, 0, 0, 3)
    assert not any(path.exists() for path in old)
    assert agrees(url, lake)


def test_compaction_notices_a_lost_row(url: str, lake: Path) -> None:
    run(url, lake, batch=15)
    path = files(lake, "message")[0]
    parquet.write_table(parquet.read_table(path).slice(1), path)
    with pytest.raises(InvalidState, match="nothing was changed"):
        compact(in_process(), str(lake))
    assert len(lakes.find(str(lake)).manifests()) == 2


def part(megabytes: int, name: str = "", table: Table = "message") -> LakePart:
    return LakePart(table, name or str(megabytes), 1, megabytes * 1_000_000, "")


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1], []),
        ([1, 2], [[1, 2]]),
        ([1, 128, 2], []),
        ([1, 2, 200, 3, 4, 5], [[1, 2], [3, 4, 5]]),
        ([127, 126, 125, 124], [[127, 126], [125, 124]]),
        ([127, 126, 125], [[127, 126]]),
    ],
)
def test_only_small_neighbours_become_one(sizes: list[int], groups: list[list[int]]) -> None:
    parts = [part(size) for size in sizes]
    beside = [part(1, "a", "history"), *parts, part(1, "b", "history")]
    found = [[int(each.path) for each in group] for group in group_neighbours(beside, "message")]
    assert found == groups


def test_a_large_file_is_left_alone(url: str, lake: Path) -> None:
    run(url, lake, batch=5)
    names = grow(lake, 3)
    before = [path.stat().st_ino for path in names]
    done = compact(in_process(), str(lake))
    assert (done.batches, done.files_before, done.files) == (6, 7, 3)
    assert [path.stat().st_ino for path in names] == before
    assert {*names} <= {*files(lake, "message"), *files(lake, "history")}
    assert agrees(url, lake)
    compact(in_process(), str(lake))
    assert agrees(url, lake)


def grow(lake: Path, batch: int) -> list[Path]:
    """Has the manifest of a batch say that its files are large; these."""
    place = lakes.find(str(lake))
    manifest = place.manifests()[batch - 1]
    parts = tuple(replace(each, bytes=LARGE_BYTES) for each in manifest.parts)
    (lake / make_manifest_name(manifest)).write_bytes(encode(replace(manifest, parts=parts)))
    return [lake / each.path for each in parts]


def test_batches_that_were_not_analysed_yet_stay_apart(url: str, lake: Path) -> None:
    run(url, lake, batch=10)
    place = lakes.find(str(lake))
    result_tables.publish(place, Results(result_tables.VERSION, place.label.id, 1, 2, 0, "", ()))
    publish(url, 5)
    run(url, lake)
    assert compact(in_process(), str(lake)).batches == 4
    assert [(each.first, each.last) for each in place.manifests()] == [(1, 2), (3, 4)]
    assert (
        choose_usable(
            result_tables.read_newest(place), place.manifests(), place, AnomalyThresholds()
        ).through
        == 2
    )
    assert agrees(url, lake)


def test_an_extract_that_was_killed_before_its_record_goes_on_after_a_compaction(
    url: str, lake: Path
) -> None:
    run(url, lake, batch=10)
    place = lakes.find(str(lake))
    before = place.manifests()[-1].start
    on(url, lambda broker: broker.store.save_cursor(place.cursor_name, before))
    compact(in_process(), str(lake))
    publish(url, 1)
    assert run(url, lake) == 1
    assert agrees(url, lake)
