"""Rules, schemas and subscriptions apply to what Spark publishes and what is replayed."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.broker.local import Broker
from penstock.errors import PenstockError
from penstock.model.message import Draft
from penstock.pipeline import ReplayRequest, extract, replay
from penstock.pipeline.spark.errors import translate_errors
from tests.extent import LONG
from tests.pipeline.scenes import on

# A replay publishes through the sink, so one policy shows that all apply to it.
BOTH = pytest.mark.parametrize("send", ["sink", "replay"], indirect=True)
SINK = pytest.mark.parametrize("send", ["sink", pytest.param("replay", marks=LONG)], indirect=True)
Govern = Callable[[Broker], Coroutine[Any, Any, None]]


async def make_queues(broker: Broker) -> None:
    """What is replayed is a message from before there was a policy."""
    for name in ("past", "orders", "vip"):
        await broker.admin.ensure_queue(name)
    await broker.admin.ensure_queue("events", kind="broadcast")
    await broker.publish(Draft(queue="past", body=b"{}"))
    await broker.complete((await broker.claim("past", consumer="c")).messages[0])


async def route(broker: Broker) -> None:
    await broker.rules.save({"name": "r", "queue": "orders", "do": [{"route": "vip"}]})


async def bind(broker: Broker) -> None:
    await broker.schemas.add("order", {"type": "object", "required": ["n"]})
    await broker.schemas.bind("orders", "order")


async def subscribe(broker: Broker) -> None:
    await broker.broadcasts.subscribe("events", "s")


@pytest.fixture
def send(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Callable[[str, str, Govern], None]:
    """Saves a policy and publishes one message to a queue."""

    def write(url: str, queue: str) -> None:
        rows = spark.createDataFrame([("1", "{}")], "key string, body string")
        options = {"url": url, "queue": queue, "name": "nightly"}
        rows.write.format("penstock").options(**options).mode("append").save()

    def repeat(url: str, queue: str) -> None:
        lake = str(tmp_path / "lake")
        extract(spark, url, lake)
        wish = ReplayRequest("state = 'completed' and queue = 'past'", to=queue)
        replay(spark, url, lake, wish)

    def act(url: str, queue: str, govern: Govern) -> None:
        on(url, make_queues)
        on(url, govern)
        with translate_errors():
            (write if request.param == "sink" else repeat)(url, queue)

    return act


def count(url: str, *queues: str) -> list[int]:
    async def look(broker: Broker) -> list[int]:
        return [len(await broker.admin.find(name)) for name in queues]

    return on(url, look)


@BOTH
def test_a_rule_routes(url: str, send: Callable[[str, str, Govern], None]) -> None:
    send(url, "orders", route)
    assert count(url, "orders", "vip") == [0, 1]


@SINK
def test_a_schema_refuses(url: str, send: Callable[[str, str, Govern], None]) -> None:
    with pytest.raises(PenstockError, match="does not match schema order@1"):
        send(url, "orders", bind)
    assert count(url, "orders") == [0]


@SINK
def test_a_subscription_gets_its_copy(url: str, send: Callable[[str, str, Govern], None]) -> None:
    send(url, "events", subscribe)
    assert count(url, "events", "events/s") == [1, 1]
