"""A lake that an older version wrote is read, and goes on."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from penstock.model.message import Draft
from penstock.pipeline import balance, read_lake
from penstock.pipeline.analytics.attempts import make_attempts, make_limits
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.schema import ADDED_COLUMNS, VERSION
from tests.pipeline.older_lakes import FILES, copy_lake
from tests.pipeline.scenes import agrees, files, in_process, on, read_column
from tests.pipeline.weeks import micros

MINUTE = 60_000_000


@pytest.fixture
def older(tmp_path: Path) -> tuple[str, Path]:
    return copy_lake(tmp_path)


def go_on(url: str, lake: Path) -> None:
    """Publishes a delayed message and extracts it."""
    draft = Draft(queue="mail", delay=60)
    on(url, lambda broker: broker.publish(draft))
    assert extract(in_process(), url, str(lake)).messages == 1


def moments(lake: Path) -> list[tuple[int, Any]]:
    """Of every message, by id: when it was to run, or None."""
    columns = ["id", "run_at"]
    found: list[tuple[int, Any]] = []
    for path in files(lake, "message"):
        table = parquet.read_table(path)
        held = [name for name in columns if name in table.column_names]
        found += [(row["id"], row.get("run_at")) for row in table.select(held).to_pylist()]
    return sorted(found, key=lambda pair: pair[0])


def test_the_files_in_the_repository_are_of_version_1() -> None:
    place = lakes.find(str(FILES))
    assert {each.schema for each in place.manifests()} == {place.label.schema} == {1}
    added = {*ADDED_COLUMNS[2]["message"]}
    assert added.isdisjoint(parquet.read_schema(files(FILES, "message")[0]).names)


def test_an_extract_into_an_older_lake_goes_on(older: tuple[str, Path]) -> None:
    url, lake = older
    go_on(url, lake)
    assert agrees(url, lake)
    *before, (_, run_at) = moments(lake)
    assert [run_at for _, run_at in before] == [None] * 6
    assert micros(run_at) - micros(read_column(lake, "message", "created_at")[-1]) == MINUTE
    assert [each.schema for each in lakes.find(str(lake)).manifests()] == [1, 1, VERSION]


def test_a_driver_of_an_older_version_that_was_killed_before_its_record_is_followed(
    older: tuple[str, Path],
) -> None:
    """The rows at the end of the lake are compared with a witness of then."""
    url, lake = older
    place = lakes.find(str(lake))
    last = place.manifests()[-1]
    on(url, lambda broker: broker.store.save_cursor(place.cursor_name, last.start))
    go_on(url, lake)
    assert agrees(url, lake)


def test_batches_of_both_versions_are_compacted_into_one(older: tuple[str, Path]) -> None:
    url, lake = older
    go_on(url, lake)
    before = moments(lake)
    assert compact(in_process(), str(lake)).batches == 3
    assert moments(lake) == before
    assert agrees(url, lake)


def test_spark_reads_an_older_lake_and_finds_it_in_balance(
    spark: SparkSession, older: tuple[str, Path]
) -> None:
    url, lake = older
    go_on(url, lake)
    rows = read_lake(spark, str(lake), "message").orderBy("id").collect()
    assert [(row.id, row.run_at) for row in rows[:6]] == [(id, None) for id in range(1, 7)]
    assert rows[6].run_at is not None
    assert balance(spark, url, str(lake), exact=True).differences == ()


def test_a_wait_begins_when_the_message_was_to_run(spark: SparkSession, tmp_path: Path) -> None:
    """Of the version that did not tell so, when it was published."""
    url, older = copy_lake(tmp_path)
    newer = str(tmp_path / "newer")
    extract(in_process(), url, newer)
    waits = [waits_of(spark, lake) for lake in (str(older), newer)]
    assert waits == [
        {1: 90.0, 2: 90.0, 3: 90.0, 4: 90.0},
        {1: 90.0, 2: 30.0, 3: 90.0, 4: 30.0},
    ]


def waits_of(spark: SparkSession, lake: str) -> dict[int, float]:
    history, messages = (read_lake(spark, lake, table) for table in ("history", "message"))
    rests = history.filter("not final")
    rows = (
        make_attempts(history, messages, rests, make_limits(spark, []))
        .select("id", "wait")
        .collect()
    )
    return {row.id: row.wait for row in rows}
