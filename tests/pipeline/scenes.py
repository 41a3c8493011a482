"""Stores with something in them, and what of it is in a lake."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from pyspark.sql import SparkSession

from penstock import stores
from penstock.broker.local import Broker
from penstock.errors import NotFound
from penstock.model.message import Draft, Fail, FeedMessage, HistoryRow, Nack
from penstock.model.store_types import Completion, Cursor
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.reader import list_paths
from penstock.pipeline.lake.schema import Table
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

AnyServer: TypeAlias = Postgres | MariaDB | Redis
T = TypeVar("T")
BODIES = (b'{"n":1}', b"not JSON", b"\xff\x00", b"")

# What takes long is left to ./dev test --all.


def on(url: str, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with await stores.open(url) as store:
            return await work(Broker(store))

    return asyncio.run(main())


def publish(url: str, count: int, queue: str = "mail") -> None:
    async def work(broker: Broker) -> None:
        try:
            await broker.admin.queue(queue)
        except NotFound:
            await broker.admin.create_queue(queue)
        drafts = [
            Draft(queue=queue, body=BODIES[n % 4], headers={"n": str(n)}, correlation_id=f"c{n}")
            for n in range(count)
        ]
        for begin in range(0, count, 1_000):
            await broker.publish_many(drafts[begin : begin + 1_000])

    on(url, work)


def consume(url: str, count: int, queue: str = "mail") -> None:
    """Completes all but two: one fails, one is put back."""

    async def work(broker: Broker) -> None:
        taken = await broker.claim(queue, consumer="c1", limit=count)
        first, second, *rest = taken.messages
        await broker.settle(first, Fail("broken"))
        await broker.settle(second, Nack("later", delay=3_600))
        await broker.complete_many([Completion(each.id, each.fence) for each in rest])

    on(url, work)


def fed(url: str) -> tuple[list[FeedMessage], list[HistoryRow]]:
    """Everything in the store, as its feed tells it."""

    async def work(broker: Broker) -> tuple[list[FeedMessage], list[HistoryRow]]:
        messages: list[FeedMessage] = []
        history: list[HistoryRow] = []
        cursor = Cursor()
        while (feed := await broker.store.feed(cursor, 1_000)).messages or feed.history:
            messages += feed.messages
            history += feed.history
            cursor = feed.cursor
        return messages, history

    return on(url, work)


def files(lake: Path, table: Table) -> list[Path]:
    return [lake / path for path in list_paths(lakes.find(str(lake)).manifests(), table)]


def read_column(lake: Path | str, table: Table, column: str) -> list[Any]:
    """A column of all that the lake holds, sorted."""
    place, found = lakes.find(str(lake)), list[Any]()
    for path in list_paths(place.manifests(), table):
        with place.files.parquet(path) as file:
            found += file.read([column]).column(column).to_pylist()
    return sorted(found)


def agrees(url: str, lake: Path | str) -> bool:
    """Every row once, and no other."""
    messages, history = fed(url)
    ids, positions = read_column(lake, "message", "id"), read_column(lake, "history", "position")
    return ids == sorted(row.id for row in messages) and positions == sorted(
        row.position for row in history
    )


class Tasks:
    def __init__(self, items: Sequence[Any], work: Callable[[Any], Any] = lambda item: item):
        self.items = items
        self.work = work

    def map(self, work: Callable[[Any], Any]) -> "Tasks":
        return Tasks(self.items, work)

    def collect(self) -> list[Any]:
        return [self.work(item) for item in self.items]


class InProcess:
    """Does the tasks of Spark here: for what a driver does around them, and no Java."""

    @property
    def sparkContext(self) -> "InProcess":  # noqa: N802
        return self

    def parallelize(self, items: Sequence[Any], _: int) -> Tasks:
        return Tasks(items)


def in_process() -> SparkSession:
    return cast(SparkSession, InProcess())
