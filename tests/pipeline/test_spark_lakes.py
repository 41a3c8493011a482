"""Spark reads and writes lakes in buckets, after compactions and with Delta logs."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.pipeline.analytics.tables import SCHEMAS as RESULT_SCHEMAS
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.delta_log import make_result_fields
from penstock.pipeline.lake.reader import read_lake, read_results
from penstock.pipeline.lake.result_tables import RESULT_TABLES, ResultTable
from penstock.pipeline.lake.schema import MESSAGE, TABLES
from penstock.pipeline.reconcile.reconcile import balance
from penstock.pipeline.replay import ReplayRequest, replay
from penstock.pipeline.run import run
from penstock.testing.simulation import START
from tests.cli.terminal import Terminal
from tests.extent import LONG
from tests.pipeline.engines import count_named, counts_agree, open_table
from tests.pipeline.scenes import publish
from tests.pipeline.test_bucket import bring, names
from tests.pipeline.test_reference import nulls_where_never
from tests.pipeline.weeks import HOUR, live


@LONG
def test_spark_reads_a_bucket_as_a_directory_and_finds_it_in_balance(
    spark: SparkSession, url: str, bucket: str, lake: Path
) -> None:
    assert extract(spark, url, bucket).messages == 30
    bring(url, str(lake))
    ours, theirs = (
        read_lake(spark, each, "joined").orderBy("position").collect()
        for each in (bucket, str(lake))
    )
    assert (ours, len(ours)) == (theirs, 20)
    assert balance(spark, url, bucket).balanced


def test_a_column_that_an_older_file_of_a_bucket_does_not_have_is_null(
    spark: SparkSession, url: str, bucket: str
) -> None:
    bring(url, bucket)
    files, (name,) = lakes.find(bucket).files, names(bucket)
    with files.parquet(name) as file:
        older = file.read().drop_columns(["hops"])
    with files.new(name) as path:
        parquet.write_table(older.append_column("gone", pa.nulls(30)), path)
    rows = read_lake(spark, bucket, "message")
    assert (rows.columns, rows.filter("hops is null").count()) == (MESSAGE.names, 30)


@LONG
def test_messages_are_replayed_from_a_bucket(spark: SparkSession, url: str, bucket: str) -> None:
    bring(url, bucket)
    done = replay(spark, url, bucket, ReplayRequest("state = 'completed'"))
    assert (done.queues, done.published, done.repeated) == ({"mail": 18}, 18, 0)
    assert [name for name in lakes.find(bucket).files.names() if "_replay" in name] == []


def everything(spark: SparkSession, lake: str) -> dict[str, list[str]]:
    return {
        table: sorted(map(repr, read_results(spark, lake, table).collect()))
        for table in RESULT_TABLES
    }


@LONG
@pytest.mark.timeout(600)
def test_runs_and_a_report_say_what_those_of_a_directory_say(
    spark: SparkSession, bucket: str, tmp_path: Path, terminal: Terminal
) -> None:
    url, lake = f"sqlite:///{tmp_path / 'night.db'}", str(tmp_path / "lake")
    for hours, begin in (((12, 20), 22), ((0, 16), 24)):
        live(url, hours, START + begin * HOUR + HOUR // 2)
        run(spark, url, bucket)
    run(spark, url, lake)
    assert everything(spark, bucket) == everything(spark, lake)
    found = result_tables.read_newest(lakes.find(bucket))
    assert found is not None
    assert found.number == 2
    pages: list[Any] = []
    for where in (bucket, lake):
        terminal.call("pipeline", "report", "--lake", where, "--out", "page.html")
        page = (terminal.folder / "page.html").read_text()
        pages.append(re.sub(r'<p class="source">.*?</p>', "", page))
    assert pages[0] == pages[1]


@LONG
@pytest.mark.timeout(600)
def test_of_two_runs_at_once_in_a_bucket_one_is_told(
    spark: SparkSession, url: str, bucket: str
) -> None:
    def meanwhile(step: str) -> None:
        if step == "metrics":
            run(spark, url, bucket)

    with pytest.raises(PenstockError, match="another process wrote results 1"):
        run(spark, url, bucket, progress=meanwhile)
    publish(url, 1)
    for number in (2, 2):
        assert run(spark, url, bucket).analysed.results.number == number
    place = lakes.find(bucket)
    found = result_tables.read_newest(place)
    assert found is not None
    kept = {file.path for file in found.files}
    assert kept <= {name for table in RESULT_TABLES for name in place.files.names(table)}


@pytest.mark.parametrize("table", RESULT_TABLES)
def test_the_types_of_columns_are_those_of_spark(spark: SparkSession, table: ResultTable) -> None:
    schema = spark.createDataFrame([], RESULT_SCHEMAS[table]).schema
    *columns, day = make_result_fields(table)
    assert {"type": "struct", "fields": columns} == schema.jsonValue()
    assert (day["name"], day["type"]) == ("day", "date")


@LONG
@pytest.mark.timeout(900)
def test_every_engine_counts_what_runs_made(spark: SparkSession, lake: Path) -> None:
    url = f"sqlite:///{lake.parent / 'store.db'}"
    for hours, begin in (((12, 20), 22), ((0, 16), 24)):
        live(url, hours, START + begin * HOUR)
        run(spark, url, str(lake))
        assert counts_agree(str(lake))
    compact(spark, str(lake))
    assert counts_agree(str(lake))
    named = count_named(str(lake))
    assert min(named.values()) > 0
    for table in TABLES:
        assert read_lake(spark, str(lake), table).count() == named[table]
    for made in RESULT_TABLES:
        assert read_results(spark, str(lake), made).count() == named[made]
        whole = open_table(str(lake), made).to_pyarrow_table()
        assert (whole.num_rows, nulls_where_never(made, whole)) == (named[made], [])


@LONG
@pytest.mark.timeout(600)
def test_a_run_after_a_compaction_makes_only_new_hours(spark: SparkSession, lake: Path) -> None:
    url = f"sqlite:///{lake.parent / 'store.db'}"
    live(url, [9, 9])
    run(spark, url, str(lake))
    live(url, [4], START + 2 * HOUR)
    extract(spark, url, str(lake))
    compact(spark, str(lake))
    analysed = run(spark, url, str(lake)).analysed
    assert 0 < len(analysed.hours) < 3
