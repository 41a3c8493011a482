"""Rows become messages: all that a row says, each once under retries, and clear words."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from penstock.errors import InvalidInput, PenstockError
from penstock.model.message import FeedMessage, State
from penstock.pipeline.spark.errors import translate_errors
from penstock.pipeline.spark.sink import make_draft
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.spark.source import PenstockSource
from tests.extent import LONG
from tests.pipeline.scenes import fed, on, publish

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    publish(url, 0)
    return url


def write(rows: DataFrame, url: str, **options: str) -> None:
    given = {"url": url, "queue": "mail", "name": "nightly"} | options
    rows.write.format("penstock").options(**given).mode("append").save()


def make_rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr(
        "cast(id as string) as key", "concat('row ', id) as body"
    )


def texts(url: str) -> list[str]:
    return sorted(each.body.decode() for each in fed(url)[0])


def test_a_message_is_what_its_row_says(spark: SparkSession, empty: str) -> None:
    rows = spark.createDataFrame(
        [
            ("a", bytearray(b"\xff"), "mail.sent", 7, {"h": "1"}, 42, LATER, "k", 2.5),
            ("b", *[None] * 8),
        ],
        "key string, body binary, type string, priority int, headers map<string,string>,"
        " parent_id long, run_at timestamp, ordering_key string, timeout double",
    )  # fmt: skip
    write(rows, empty)
    messages = {each.meta.dedup: each for each in fed(empty)[0]}
    full, bare = messages["nightly:a"], messages["nightly:b"]
    assert (full.type, full.priority, full.body) == ("mail.sent", 7, b"\xff")
    assert (full.meta.headers, full.meta.parent_id, full.meta.ordering_key, full.meta.timeout) == (
        {"h": "1"}, 42, "k", 2.5
    )  # fmt: skip
    record = on(empty, lambda broker: broker.admin.get(full.id))
    assert (record.state, record.run_at) == (State.SCHEDULED, int(LATER.timestamp() * 1_000_000))
    assert (bare.type, bare.body, bare.meta.headers) == ("message", b"", None)


def test_the_same_rows_again_publish_nothing(spark: SparkSession, empty: str) -> None:
    for _ in range(2):
        write(make_rows(spark, 30), empty)
    assert texts(empty) == sorted(f"row {n}" for n in range(30))


def failing_once(at: int) -> Callable[[str], str]:
    """The first attempt of a task fails when it comes to a row, and not the next."""

    def look(key: str) -> str:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and int(key) == at:
            raise OSError("a disk broke")
        return key

    return look


def test_a_task_that_fails_half_way_is_repeated_without_doubles(
    spark: SparkSession, empty: str
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    fails = f.udf(failing_once(950), "string", useArrow=False)
    write(make_rows(spark, 1_000).withColumn("key", fails("key")), empty)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    messages = fed(empty)[0]
    assert sorted(each.body for each in messages) == sorted(b"row %d" % n for n in range(1_000))
    # What the first attempt had published is of an earlier moment.
    assert any_earlier(messages, b"row 500", b"row 999")


def any_earlier(messages: list[FeedMessage], before: bytes, after: bytes) -> bool:
    at = {each.body: each.created_at for each in messages}
    return at[before] < at[after]


@LONG
def test_a_micro_batch_that_is_repeated_publishes_nothing_new(
    spark: SparkSession, empty: str, tmp_path: Path
) -> None:
    make_rows(spark, 10).write.parquet(str(tmp_path / "in"))
    stream(spark, empty, tmp_path)
    assert len(texts(empty)) == 10
    # As if the driver had been killed before Spark wrote down that the batch was done.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    make_rows(spark, 12).write.mode("append").parquet(str(tmp_path / "in"))
    stream(spark, empty, tmp_path)
    assert texts(empty) == sorted(f"row {n}" for n in range(12))


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    rows = spark.readStream.schema("key string, body string").parquet(str(folder / "in"))
    query = (
        rows.writeStream.format("penstock")
        .options(url=url, queue="mail", name="s", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("body string", {}, "the column key is missing"),
        ("key int", {}, "column 'key' has type int and must be text"),
        ("key string, colour int", {}, "unknown column 'colour'"),
        ("key string, headers string", {}, "column 'headers' has type string and must be a map"),
        (
            "key string, run_at timestamp_ntz",
            {},
            "column 'run_at' has type timestamp_ntz and must be",
        ),
        ("key string", {"name": ""}, "needs the option name"),
        ("key string", {"url": ""}, "needs the option url"),
        ("key string", {"nmae": "x"}, "unknown option of the format penstock: nmae"),
        ("key string", {"queue": "emials"}, "no queue named 'emials'"),
        ("key string", {"rate": "fast"}, "rate must be a positive number such as 50/s, not 'fast'"),
        ("key string", {"conflict": "maybe"}, "conflict must be refuse or ignore, not 'maybe'"),
    ],
)
def test_what_is_wrong_with_a_write_is_named_before_a_task_is_started(
    empty: str, columns: str, options: dict[str, str], reason: str
) -> None:
    given = {"url": empty, "queue": "mail", "name": "n"} | options
    schema = _parse_datatype_string(columns)
    assert isinstance(schema, StructType)
    with pytest.raises(PenstockError, match=reason):
        PenstockSource(given).writer(schema, False)


def test_a_queue_is_named_by_a_row_or_an_option(empty: str) -> None:
    source = PenstockSource({"url": empty, "name": "n"})
    with pytest.raises(InvalidInput, match="add a column queue or set the option queue"):
        source.writer(StructType([StructField("key", StringType())]), False)
    with pytest.raises(InvalidInput, match="the row with key 'a' has no queue"):
        make_draft({"key": "a"}, SinkOptions(empty, "n"))


def test_a_row_without_a_key_stops_the_write(spark: SparkSession, empty: str) -> None:
    rows = spark.range(1).selectExpr("cast(null as string) as key")
    with pytest.raises(InvalidInput, match="a row has no key"), translate_errors():
        write(rows, empty)
    assert texts(empty) == []


def test_a_queue_is_not_overwritten(empty: str) -> None:
    source = PenstockSource({"url": empty, "queue": "mail", "name": "n"})
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(InvalidInput, match="a queue cannot be overwritten"):
            writer(StructType([StructField("key", StringType())]), True)
