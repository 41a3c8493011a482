"""A queue worked off by a stream: each message once in the output, completed, none left leased."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.broker.local import Broker
from penstock.errors import InvalidInput, InvalidState, PenstockError
from penstock.model.message import Draft, Leased
from penstock.model.store_types import Lock
from penstock.pipeline import complete_after
from penstock.pipeline.spark.queue_claims import parse_queue_options
from penstock.pipeline.spark.queue_stream import QueueReader, keep_extended
from penstock.pipeline.spark.source import PenstockSource
from penstock.pipeline.store_access import use_store
from tests.extent import LONG
from tests.pipeline.scenes import AnyServer, on, publish


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    publish(url, 7)
    return url


class Stream:
    """Writes each batch to a directory of its own, which a repeated batch replaces."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder

    def write(self, rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{self.folder}/out/batch={batch}")

    def run(self, write: Callable[[DataFrame, int], None] | None = None) -> None:
        rows = self.source().writeStream.foreachBatch(complete_after(self.url, write or self.write))
        checkpoint = str(self.folder / "checkpoint")
        query = rows.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def source(self, queue: str = "mail") -> DataFrame:
        options = {"url": self.url, "queue": queue, "maxRowsPerTrigger": "4", "partitionRows": "3"}
        return self.spark.readStream.format("penstock").options(**options).load()

    def rows(self) -> list[Row]:
        return self.spark.read.parquet(f"{self.folder}/out").collect()


@pytest.fixture
def stream(spark: SparkSession, store: str, tmp_path: Path) -> Stream:
    return Stream(spark, store, tmp_path)


def places(url: str) -> dict[str, int]:
    found = on(url, lambda broker: broker.store.census())
    return {each.place: each.count for each in found if each.count}


def test_every_message_is_written_once_and_none_is_left_leased(
    stream: Stream, tmp_path: Path
) -> None:
    in_line = [Draft(queue="mail", ordering_key="k") for _ in range(2)]
    on(stream.url, lambda broker: broker.publish_many(in_line))
    stream.run()
    rows = sorted(stream.rows())
    assert [row.id for row in rows] == list(range(1, 10))
    assert (rows[0].queue, rows[0].headers["n"], rows[0].deliveries) == ("mail", "0", 1)
    assert all(row.fence > 0 for row in rows)
    assert places(stream.url) == {"message": 9, "ended": 9}
    assert len(list((tmp_path / "out").glob("batch=*"))) == 3


def test_a_batch_that_broke_after_it_was_written_is_given_again(stream: Stream) -> None:
    def breaking(rows: DataFrame, batch: int) -> None:
        stream.write(rows, batch)
        if batch == 1:
            raise OSError("out of luck")

    with pytest.raises(PySparkException, match="out of luck"):
        stream.run(breaking)
    assert places(stream.url) == {"message": 7, "ended": 4, "lease": 3}
    # Meanwhile another one got it: it is not ours to write.
    on(stream.url, lambda broker: broker.admin.cancel(6, force=True))
    stream.run()
    assert [row.id for row in sorted(stream.rows())] == [1, 2, 3, 4, 5, 7]
    assert places(stream.url) == {"message": 7, "ended": 7}


def test_a_sink_of_spark_completes_a_batch_when_the_next_one_is_planned(
    stream: Stream, tmp_path: Path
) -> None:
    query = (
        stream.source()
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"), format="parquet")
    )
    query.awaitTermination()
    assert [row.id for row in sorted(stream.rows())] == list(range(1, 8))
    assert places(stream.url) == {"message": 7, "ended": 7}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"queue": "emials"}, "no queue named 'emials'"),
        ({"lease": "long"}, "lease must be an integer of at least 1, not 'long'"),
        ({"table": "history"}, "unknown option of the format penstock: table"),
    ],
)
def test_what_is_wrong_with_a_stream_is_named(
    store: str, change: dict[str, str], reason: str
) -> None:
    source = PenstockSource({"url": store, "queue": "mail"} | change)
    with pytest.raises(PenstockError, match=reason):
        source.streamReader(source.schema()).initialOffset()


def test_a_checkpoint_of_something_else_is_refused(store: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    publish(other, 1)
    reader = QueueReader(parse_queue_options({"url": store, "queue": "mail"}))
    start = QueueReader(parse_queue_options({"url": other, "queue": "mail"})).initialOffset()
    for odd, reason in ((start, "to another store"), ({"position": 1}, "to a queue stream")):
        with pytest.raises(InvalidState, match=reason):
            reader.latestOffset(odd, reader.getDefaultReadLimit())
    assert places(store) == {"message": 7, "ready": 7}


def test_a_queue_is_read_as_a_stream_only(store: str) -> None:
    source = PenstockSource({"url": store, "queue": "mail"})
    with pytest.raises(InvalidInput, match="a queue can only be read with"):
        source.reader(source.schema())


def test_rows_without_their_locks_are_not_completed(spark: SparkSession, store: str) -> None:
    work = complete_after(store, lambda rows, batch: None)
    with pytest.raises(InvalidInput, match="complete_after needs the columns id and fence"):
        work(spark.range(1), 0)


def test_leases_are_extended_while_the_work_goes_on(store: str) -> None:
    held, until = claim_one(store)
    with keep_extended(store, [held], 0.3):
        while lease_until(store, held) <= until:
            pass


def claim_one(url: str) -> tuple[Lock, int]:
    async def work(broker: Broker) -> Leased:
        return (await broker.claim("mail", consumer="c", lease=1.0)).messages[0]

    taken = on(url, work)
    return Lock(taken.id, taken.fence), taken.lease_until


def lease_until(url: str, held: Lock) -> int:
    (lease,) = use_store(url, lambda store: store.leases([held]))
    assert lease is not None
    return lease.lease_until


@LONG
@pytest.mark.parametrize("engine", ["redis"])
def test_a_queue_on_a_server_is_worked_off_alike(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    server: AnyServer = request.getfixturevalue(f"{engine}_server")
    with server.database() as url:
        publish(url, 4)
        stream = Stream(spark, url, tmp_path)
        stream.run()
        assert len({row.id for row in stream.rows()}) == len(stream.rows()) == 4
        assert places(url) == {"message": 4, "ended": 4}
