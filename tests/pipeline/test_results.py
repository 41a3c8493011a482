"""Result tables keep one schema and few files, however many runs make them."""

import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.analytics.anomalies import find_by_message
from penstock.pipeline.analytics.thresholds import load
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.result_tables import RESULT_TABLES, ResultFile, Results, ResultTable
from penstock.pipeline.report.data import read_report_data
from tests.cli.terminal import Terminal
from tests.pipeline.analysed import FIRST_DAY, MESSAGES, THIRD_DAY, Days

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def lake(days: Days) -> Path:
    return days.lake


def newest(lake: Path) -> Results:
    found = result_tables.read_newest(lakes.find(str(lake)))
    assert found is not None
    return found


def rows_of(lake: Path, table: ResultTable) -> list[dict[str, Any]]:
    files = newest(lake).list_files(table)
    return [row for each in files for row in parquet.read_table(lake / each.path).to_pylist()]


def test_a_day_that_was_remade_is_read_beside_one_that_was_not(lake: Path) -> None:
    told = read_report_data(lakes.find(str(lake)), 72)
    assert told.total["published"] == 3 * MESSAGES
    assert len(told.overall) == 3


@pytest.mark.parametrize("table", RESULT_TABLES)
def test_files_of_a_table_have_one_schema_in_which_all_is_nullable(
    lake: Path, table: ResultTable
) -> None:
    files = newest(lake).list_files(table)
    first, *others = (parquet.read_schema(lake / each.path).remove_metadata() for each in files)
    assert {each.day for each in files} >= {FIRST_DAY, THIRD_DAY}
    assert all(each == first for each in others)
    assert "not null" not in str(first)


def test_files_that_differ_in_what_may_be_null_are_read_together(
    lake: Path, tmp_path: Path
) -> None:
    other = tmp_path / "lake"
    shutil.copytree(lake, other)
    path = other / newest(lake).list_files("metrics_hour", {FIRST_DAY})[0].path
    table = parquet.read_table(path, partitioning=None)
    number = table.schema.get_field_index("published")
    required = table.schema.set(number, table.schema.field(number).with_nullable(False))
    parquet.write_table(table.cast(required), path)
    assert read_report_data(lakes.find(str(other)), 72).total["published"] == 3 * MESSAGES


def test_wait_and_run_are_null_without_a_claim(lake: Path) -> None:
    rows = rows_of(lake, "attempt")
    unclaimed = [row for row in rows if row["claimed_at"] is None]
    assert unclaimed
    assert {(row["wait"], row["run"]) for row in unclaimed} == {(None, None)}
    assert all(row["run"] is not None for row in rows if row["claimed_at"] is not None)


# In the first hour two messages lose a lease, have one attempt left and die; in the second one.
ENDS = """
    SELECT timestamp_seconds(hour * 3600) AS at, id, id AS position, 1L AS queue_id, '' AS type,
        '' AS tenant, 'default' AS scope, 'mail' AS queue, verb, state, 1L AS attempts,
        1L AS deliveries, attempts_left, 1 AS alike, 1 AS alike_consumers, 1.0D AS run,
        30.0D AS lease, 10L AS body_bytes, CAST(NULL AS string) AS rested
    FROM (SELECT explode(array(0, 0, 1)) AS hour)
    CROSS JOIN VALUES (1L, 'reclaim', 'ready', 9), (2L, 'nack', 'ready', 1), (3L, 'fail', 'dead', 0)
        AS ends (id, verb, state, attempts_left)
"""


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("lost_least", "lost_lease"),
        ("last_chance_least", "near_dlq"),
        ("dead_least", "dlq_movement"),
    ],
)
def test_a_rule_says_how_many_an_hour_must_have(spark: SparkSession, rule: str, kind: str) -> None:
    found = find_by_message(spark.sql(ENDS), load(None, [f"{rule}=2"])).collect()
    counts = {(row["hour"].timestamp() // 3600, row["kind"]): row["count"] for row in found}
    every = {(hour, each): count for hour, count in ((0, 2), (1, 1))
             for each in ("lost_lease", "near_dlq", "dlq_movement")}  # fmt: skip
    assert counts == {key: count for key, count in every.items() if key != (1, kind)}


def test_a_day_that_is_over_is_merged(lake: Path) -> None:
    files = newest(lake).list_files("attempt")
    assert [(each.day, result_tables.parse_run(each.path)) for each in files] == [
        (FIRST_DAY, 3),
        (THIRD_DAY, 3),
    ]
    positions = [row["position"] for row in rows_of(lake, "attempt")]
    assert sorted(positions) == list(range(1, len(positions) + 1))


def test_only_files_that_a_manifest_names_are_in_the_folders_of_tables(lake: Path) -> None:
    place = lakes.find(str(lake))
    named = {
        file.path
        for name in result_tables.list_manifests(place)
        for file in result_tables.list_manifest_files(place, name)
    }
    found = {name for table in RESULT_TABLES for name in place.files.names(table)}
    assert {name for name in found if "_delta_log" not in name} == named


def test_a_damaged_file_is_named_in_a_sentence(lake: Path, terminal: Terminal) -> None:
    damaged = newest(lake).list_files("anomaly", {THIRD_DAY})[0]
    text = (lake / damaged.path).read_bytes()
    try:
        (lake / damaged.path).write_bytes(text[:-9])
        said = terminal.call("pipeline", "report", "--lake", lake, code=1).err
        assert said.startswith(f"penstock: cannot read '{damaged.path}' of lake '{lake}'")
        assert "the next penstock pipeline run rebuilds all tables" in said
    finally:
        (lake / damaged.path).write_bytes(text)


def test_files_of_attempts_stay_few_over_a_quarter_of_hourly_runs() -> None:
    files: list[ResultFile] = []
    most, today = 0, ""
    for hour in range(24 * 90):
        today = f"{datetime(2026, 1, 1) + timedelta(hours=hour):%Y-%m-%d}"
        merged = result_tables.choose_days_to_merge(files, today)
        kept = [each for each in files if each.day not in merged]
        files = kept + [written(day, hour) for day in {*merged, today}]
        most = max(most, len(files))
    assert most <= 90 + 24 + 24
    assert result_tables.choose_days_to_merge(files, today) == set()


def written(day: str, number: int) -> ResultFile:
    return ResultFile("attempt", day, f"attempt/run-{number:010}/day={day}/0.parquet", 1)


def test_a_day_with_many_runs_is_merged_before_it_is_over() -> None:
    files = [written(FIRST_DAY, number) for number in range(result_tables.MAX_RUNS_OF_A_DAY)]
    assert result_tables.choose_days_to_merge(files, FIRST_DAY) == set()
    assert result_tables.choose_days_to_merge([*files, written(FIRST_DAY, 99)], FIRST_DAY) == {
        FIRST_DAY
    }


def test_a_report_names_its_store_and_imports_no_spark(lake: Path, terminal: Terminal) -> None:
    said = terminal.run("pipeline", "report", "--lake", lake, PYTHONPROFILEIMPORTTIME="1")
    page = (terminal.folder / "report.html").read_text()
    assert f"Store <code>sqlite:///{lake.parent}/store.db</code>" in page
    assert "pyarrow" in said.err
    assert not re.search(r"\b(pyspark|py4j)\b", said.err)


def test_a_submodule_does_not_hide_the_public_function_of_its_name() -> None:
    code = "import penstock.pipeline.run; from penstock.pipeline import run; print(type(run))"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout == "<class 'function'>\n"
