"""The export's positions are final: nothing appears below them, whoever writes for how long."""

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import anyio
import pymysql
import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft, Nack
from penstock.model.store_types import Cursor, Entry
from penstock.stores.mariadb.store import MariaStore
from tests.servers.mariadb import MariaDB

pytestmark = pytest.mark.anyio
QUEUE = 2


@pytest.fixture
def outside(mariadb_server: MariaDB, url: str) -> Iterator[pymysql.Connection]:
    with pymysql.connect(
        host="127.0.0.1", port=mariadb_server.port, user="penstock",
        database=url.rpartition("/")[2],
    ) as connection:  # fmt: skip
        yield connection


def entry(body: bytes = b"") -> Entry:
    return Entry(QUEUE, "test", body)


@contextmanager
def publishing(store: MariaStore, connection: pymysql.Connection) -> Iterator[int]:
    """A caller's transaction that has published, and is open."""
    (published,) = store.enqueue_on(connection, [entry()])
    yield published.id
    connection.commit()


async def read_feed(store: MariaStore, cursor: Cursor) -> tuple[list[int], Cursor]:
    feed = await store.feed(cursor, 1_000)
    return [message.id for message in feed.messages], feed.cursor


async def test_what_is_committed_late_is_told_before_what_came_after_it(
    store: MariaStore, outside: pymysql.Connection
) -> None:
    first = await publish(store)
    with publishing(store, outside) as late:
        last = await publish(store)
        before, cursor = await read_feed(store, Cursor())
    assert set(before) <= {first}
    after, _ = await read_feed(store, cursor)
    assert before + after == [first, late, last]


async def publish(store: MariaStore) -> int:
    (published,) = await store.enqueue([entry()])
    return published.id


async def test_what_is_rolled_back_keeps_nobody_waiting(
    store: MariaStore, outside: pymysql.Connection
) -> None:
    with publishing(store, outside):
        last = await publish(store)
        assert (await read_feed(store, Cursor()))[0] == []
        outside.rollback()
    assert (await read_feed(store, Cursor()))[0] == [last]


async def test_what_was_final_before_a_long_transaction_began_is_told_during_it(
    store: MariaStore, outside: pymysql.Connection
) -> None:
    ids = [await publish(store) for _ in range(3)]
    await read_feed(store, Cursor())
    with publishing(store, outside):
        ids.append(await publish(store))
        # Somebody is at work, and the next look begins a generation for those who come now.
        assert (await read_feed(store, Cursor()))[0] == []
    assert set(ids) < set((await read_feed(store, Cursor()))[0])


class Reader:
    """Reads page by page until the others are over, and it has all of it."""

    def __init__(self, store: MariaStore) -> None:
        self.store = store
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.over = False

    async def read(self) -> None:
        cursor, more = Cursor(), True
        while more:
            more = not self.over
            feed = await self.store.feed(cursor, 1_000)
            more = more or feed.cursor != cursor
            cursor = feed.cursor
            self.ids += [message.id for message in feed.messages]
            self.positions += [row.position for row in feed.history]


async def publish_and_nack(broker: Broker, seed: int, written: set[int]) -> None:
    die = random.Random(seed)
    for _ in range(40):
        drafts = [Draft(body=b"x") for _ in range(die.randrange(1, 4))]
        written.update(each.id for each in await broker.publish_many(drafts))
        for leased in (await broker.claim("default", limit=2, consumer="t")).messages:
            await broker.settle(leased, Nack(delay=0))


async def hold(
    store: MariaStore, connection: pymysql.Connection, seed: int, written: set[int]
) -> None:
    """Transactions that are open for a while; every other one is rolled back."""
    die = random.Random(seed)
    for number in range(15):
        connection.begin()
        ids = [each.id for each in store.enqueue_on(connection, [entry()] * 2)]
        await anyio.sleep(die.random() / 50)
        if number % 2:
            connection.rollback()
        else:
            connection.commit()
            written.update(ids)


async def test_a_reader_loses_nothing_among_writers_of_every_kind(
    store: MariaStore, mariadb_server: MariaDB, url: str
) -> None:
    broker, reader, written = Broker(store), Reader(store), set[int]()
    async with anyio.create_task_group() as tasks, AsyncExitStack() as connections:
        tasks.start_soon(reader.read)
        async with anyio.create_task_group() as writers:
            for seed in range(4):
                connection = mariadb_server.connect(url.rpartition("/")[2])
                connections.callback(connection.close)
                writers.start_soon(publish_and_nack, broker, seed, written)
                writers.start_soon(hold, store, connection, seed, written)
        reader.over = True
    assert reader.ids == sorted(written)
    assert reader.positions == [row.position for row in await store.recent(0, 100_000)]


async def test_what_was_final_once_is_told_whoever_is_at_work_since(
    store: MariaStore, outside: pymysql.Connection
) -> None:
    """Nobody was at work when it was found final, so no generation says so."""
    await store.enqueue([entry() for _ in range(3)])
    known = (await store.feed(Cursor(), 100)).cursor
    with publishing(store, outside):
        assert (await store.feed(Cursor(), 100)).messages == []
        assert len((await store.feed(Cursor(), 100, known)).messages) == 3
