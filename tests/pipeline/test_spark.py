"""The pipeline on Spark itself."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.broker.local import Broker
from penstock.model.store_types import Retention
from penstock.pipeline import balance, extract, join_tables, read_lake
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.manifest import encode
from penstock.pipeline.lake.schema import HISTORY, MESSAGE, Table
from penstock.pipeline.store_access import make_identity, use_store
from tests.cli.terminal import Terminal
from tests.extent import LONG
from tests.pipeline.scenes import AnyServer, agrees, consume, fed, files, on, publish

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pipeline.md"


def table(spark: SparkSession, url: str, **options: object) -> DataFrame:
    return (
        spark.read.format("penstock")
        .options(url=url, **{k: str(v) for k, v in options.items()})
        .load()
    )


def test_a_table_is_read_whole_in_parts_and_columns(spark: SparkSession, url: str) -> None:
    messages, _ = fed(url)
    rows = table(spark, url, partitionRows=7, columns="id, body,headers,queue,created_at")
    assert rows.rdd.getNumPartitions() == 5
    found = sorted(rows.collect())
    assert [(row.id, bytes(row.body), row.headers, row.queue) for row in found] == [
        (each.id, each.body, each.meta.headers, "mail") for each in messages
    ]


def test_the_question_of_one_query_is_not_that_of_the_next(spark: SparkSession, url: str) -> None:
    rows = table(spark, url, table="history")
    final = rows.filter("final")
    every, some = rows.count(), final.count()
    assert 0 < some < every
    assert (rows.count(), rows.union(final).count()) == (every, every + some)


def test_filters_are_left_to_the_source_and_exact(spark: SparkSession, url: str) -> None:
    _, history = fed(url)
    columns = "position,id,state,error,final,at"
    rows = table(spark, url, table="history", columns=columns, pushFilters="true")
    wanted = rows.filter(
        "state in ('completed', 'failed') and error is not null and id >= 1 and final"
        " and at > timestamp'2020-01-01' and at < timestamp'2200-01-01'"
    )
    plan = wanted._jdf.queryExecution().executedPlan().toString()
    assert " Filter " not in plan
    failed = [row.position for row in history if row.error and row.final]
    assert [row.position for row in wanted.collect()] == failed


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, url: str, tmp_path: Path) -> None:
    stream(spark, url, tmp_path)
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 2
    publish(url, 5)
    stream(spark, url, tmp_path)
    found = spark.read.schema("id long").parquet(str(tmp_path / "out"))
    assert sorted(row.id for row in found.collect()) == [each.id for each in fed(url)[0]]


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    """What is there now, a score of rows at a time."""
    source = spark.readStream.format("penstock").options(url=url, columns="id")
    query = (
        source.option("maxRowsPerTrigger", "20")
        .load()
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"), format="parquet")
    )
    query.awaitTermination()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"table": "jobs"}, "unknown table 'jobs'"),
        ({"columns": "id,nonsense"}, "unknown column nonsense of message"),
        ({"partitionRows": "0"}, "partitionRows must be an integer of at least 1"),
        ({"tabel": "history"}, "unknown option of the format penstock: tabel"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, url: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        table(spark, url, **options)


def test_the_lake_is_read_with_files_of_an_older_schema(
    spark: SparkSession, url: str, lake: Path
) -> None:
    extract(spark, url, str(lake))
    (path,) = files(lake, "message")
    whole = parquet.read_table(path)
    parquet.write_table(whole.drop_columns(["hops", "traceparent"]), path)
    rows = read_lake(spark, str(lake), "message")
    assert rows.columns == MESSAGE.names
    assert {(row.hops, row.queue) for row in rows.select("hops", "queue").collect()} == {
        (None, "mail")
    }


def test_attempts_are_joined_with_their_messages(spark: SparkSession, url: str, lake: Path) -> None:
    extract(spark, url, str(lake))
    both = join_tables(
        read_lake(spark, str(lake), "message"), read_lake(spark, str(lake), "history")
    )
    assert set(both.columns) == {*MESSAGE.names, *HISTORY.names}
    (failed,) = both.filter("state = 'failed'").select("error", "correlation_id").collect()
    assert failed.asDict() == {"error": "broken", "correlation_id": "c0"}


@LONG
def test_the_examples_of_the_page_run(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """They are skipped with the other pages, for which no Spark is started."""
    text = PAGE.read_text().replace("sqlite:///penstock.db", url)
    for name in ("lake", "copy", "checkpoint", "worked", "work-checkpoint"):
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert {row.error for row in names["failed"].collect()} == {"broken", "later"}
    assert len(list((tmp_path / "copy").glob("*.parquet"))) == 1
    assert len(list((tmp_path / "worked").glob("*/*.parquet"))) == 1


class Sheet:
    """A lake of 30 messages in balance with its store, and what is then done to it."""

    def __init__(self, spark: SparkSession, url: str, lake: Path) -> None:
        self.spark, self.url, self.lake = spark, url, lake
        extract(spark, url, str(lake))

    def plant(self, table: Table, change: Any) -> None:
        """In the file, and so that the manifest says the same."""
        (path,) = files(self.lake, table)
        parquet.write_table(change(parquet.read_table(path)), path)

    def hide(self) -> None:
        place = lakes.find(str(self.lake))
        (manifest,) = place.manifests()
        parts = tuple(change_digest(self.lake, part) for part in manifest.parts)
        (self.lake / "_manifest" / manifest.name).write_bytes(
            encode(replace(manifest, parts=parts))
        )

    def differences(self) -> list[tuple[str, str, int]]:
        found = balance(self.spark, self.url, str(self.lake))
        assert not found.balanced
        return [(each.kind, each.table, each.id) for each in found.differences]


def change_digest(lake: Path, part: Any) -> Any:
    text = (lake / part.path).read_bytes()
    return replace(part, sha256=hashlib.sha256(text).hexdigest())


@pytest.fixture
def sheet(spark: SparkSession, url: str, lake: Path) -> Sheet:
    return Sheet(spark, url, lake)


def test_a_lost_row_is_found_even_if_the_manifest_was_made_to_fit(sheet: Sheet) -> None:
    sheet.plant("message", lambda rows: rows.slice(0, 29))
    sheet.hide()
    assert sheet.differences() == [("lost", "message", 30)]


def test_a_doubled_and_a_changed_row_are_found(sheet: Sheet) -> None:
    def change(rows: Any) -> Any:
        bodies = rows.column("body").to_pylist()
        bodies[6] = b"forged"
        changed = rows.set_column(rows.schema.names.index("body"), "body", pa.array(bodies))
        return pa.concat_tables([changed, rows.slice(4, 1)])

    sheet.plant("message", change)
    assert sheet.differences() == [("doubled", "message", 5), ("changed", "message", 7)]


def test_what_retention_took_is_still_in_balance(sheet: Sheet) -> None:
    consume(sheet.url, 5)
    extract(sheet.spark, sheet.url, str(sheet.lake))

    async def prune(broker: Broker) -> int:
        (queue,) = [each for each in await broker.store.queues() if each.name == "mail"]
        later = await broker.store.now() + 1
        return (await broker.store.prune(Retention((queue.id,), later, 0))).count

    assert on(sheet.url, prune) == 23
    publish(sheet.url, 3)
    found = balance(sheet.spark, sheet.url, str(sheet.lake))
    assert (found.balanced, found.differences) == (True, ())
    assert [(each.lake, each.above, each.store, each.archived) for each in found.lines] == [
        (30, 3, 10, 23),
        (23, 0, 0, 23),
    ]


def test_the_commands_say_what_they_did(
    spark: SparkSession, url: str, lake: Path, terminal: Terminal
) -> None:
    done = terminal.call("pipeline", "extract", "--url", url, "--lake", lake).out
    assert done == f"added 30 messages and 20 history rows to {lake}\n"
    found = terminal.call("pipeline", "balance", "--url", url, "--lake", lake)
    assert found.out.splitlines()[1:] == [
        "mail   message    30      0     30         0  ok",
        "mail   ended      19      0     19         0  ok",
        "balanced",
    ]
    files(lake, "history")[0].write_bytes(b"nonsense")
    (path,) = files(lake, "history")
    path.write_bytes(b"nonsense")
    found = terminal.call("pipeline", "balance", "--url", url, "--lake", lake, code=1)
    assert found.out.splitlines()[2:5] == [
        "mail   ended       0      0     19         0  DIFFERS",
        f"damaged: {path.relative_to(lake)}",
        "lost: history 1 at position 1 of mail",
    ]
    assert found.out.splitlines()[-1] == "not balanced"


def test_a_task_that_fails_says_why_in_a_line(
    spark: SparkSession, url: str, lake: Path, terminal: Terminal
) -> None:
    with lakes.hold_lock(str(lake), use_store(url, make_identity)):
        (lake / "message").mkdir()
        (lake / "message" / "batch=0000000001").symlink_to("/proc")
    said = terminal.call("pipeline", "extract", "--url", url, "--lake", lake, code=3).err
    assert said.startswith("penstock: the Spark job failed: FileNotFoundError: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "redis"])
def test_every_store_has_a_lake_in_balance(
    spark: SparkSession, lake: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    server: AnyServer = request.getfixturevalue(f"{engine}_server")
    with server.database() as url:
        publish(url, 40)
        consume(url, 20)
        assert extract(spark, url, str(lake)).messages == 40
        publish(url, 3)
        found = balance(spark, url, str(lake), exact=True)
        assert (found.balanced, found.differences) == (True, ())
        assert [(each.lake, each.above, each.store) for each in found.lines] == [
            (40, 3, 43),
            (19, 0, 19),
        ]
        extract(spark, url, str(lake))
        assert agrees(url, lake)
