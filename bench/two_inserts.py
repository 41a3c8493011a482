"""The two inserts of a publish by hand: the message and its ticket, in the tables of Penstock.

They bound what a store with these tables can do: nothing is checked, shared or announced.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bench import verbs
from bench.figures import Figure, compare_values
from bench.ground import Ground
from bench.measures import Measures
from bench.processes import Start, run_alone
from bench.references import postgres_loops, sqlite_loops
from bench.workload import BULK, WARM_UP, make_bodies
from penstock.model.message import Draft
from penstock.stores.postgres.transaction import SQL as POSTGRES
from penstock.stores.sqlite.transaction import SQL as SQLITE

Publish: TypeAlias = Callable[[Start, str, float], float]
Bulk: TypeAlias = Callable[[Start, str, int], float]
# The type of a message that names none.
TYPE = Draft().type


async def create_queue(url: str) -> int:
    """Creates the tables and the queue, and returns its id."""
    async with verbs.open_broker(url) as broker:
        return (await broker.admin.queue(verbs.QUEUE)).id


class SqliteInserts:
    def __init__(self, url: str) -> None:
        self.queue_id = verbs.run(create_queue(url))
        self.db = sqlite_loops.connect(url)

    def insert(self, texts: Sequence[str]) -> None:
        head = (self.queue_id, TYPE, 0, 0, time.time_ns() // 1_000, None, None)
        self.db.execute("BEGIN IMMEDIATE")
        rows = [(*head, text.encode(), None) for text in texts]
        self.db.executemany(SQLITE["publish_message"], rows)
        (last,) = self.db.execute("SELECT last_insert_rowid()").fetchone()
        ticket = {"queue_id": self.queue_id, "rank": 0, "type": TYPE, "expires_at": None}
        span = {"first": last - len(texts) + 1, "last": last, "flags": 0}
        self.db.execute(SQLITE["publish_ready_uniform"], ticket | span)
        self.db.execute("COMMIT")


def publish_on_sqlite(start: Start, url: str, seconds: float) -> float:
    inserts, texts = SqliteInserts(url), make_bodies(BULK)
    for text in texts[:WARM_UP]:
        inserts.insert([text])
    start()
    began = time.monotonic()
    count = 0
    while (elapsed := time.monotonic() - began) < seconds:
        inserts.insert([texts[count % BULK]])
        count += 1
    return count / elapsed


def bulk_on_sqlite(start: Start, url: str, count: int) -> float:
    inserts, texts = SqliteInserts(url), make_bodies(BULK)
    inserts.insert(texts)
    start()
    began = time.monotonic()
    for _ in range(count // BULK):
        inserts.insert(texts)
    return count / (time.monotonic() - began)


def publish_on_postgres(start: Start, url: str, seconds: float) -> float:
    return verbs.run(_publish_on_postgres(start, url, seconds))


async def _publish_on_postgres(start: Start, url: str, seconds: float) -> float:
    head, texts = await make_head(url), make_bodies(BULK)
    statement = POSTGRES["publish_one"]
    async with postgres_loops.open_connection(url) as connection:
        insert = await connection.prepare(statement.text)
        calls = [statement.values(head | {"body": text.encode()}) for text in texts]
        for call in calls[:WARM_UP]:
            await insert.fetch(*call)
        start()
        began = time.monotonic()
        count = 0
        while (elapsed := time.monotonic() - began) < seconds:
            await insert.fetch(*calls[count % BULK])
            count += 1
        return count / elapsed


def bulk_on_postgres(start: Start, url: str, count: int) -> float:
    return verbs.run(_bulk_on_postgres(start, url, count))


async def _bulk_on_postgres(start: Start, url: str, count: int) -> float:
    head, texts = await make_head(url), make_bodies(BULK)
    statement = POSTGRES["publish_uniform"]
    async with postgres_loops.open_connection(url) as connection:
        insert = await connection.prepare(statement.text)
        await insert.fetch(*statement.values(head | {"bodies": [text.encode() for text in texts]}))
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            bodies = [text.encode() for text in texts]
            await insert.fetch(*statement.values(head | {"bodies": bodies}))
        return count / (time.monotonic() - began)


async def make_head(url: str) -> dict[str, Any]:
    """Returns the values that all messages share."""
    queue_id = await create_queue(url)
    return {"queue_id": queue_id, "type": TYPE, "priority": 0, "rank": 0, "meta": None}


def make_measures(publish: Publish, bulk: Bulk) -> Measures:
    """Makes the measures of Penstock against these inserts."""

    def publish_two_inserts(ground: Ground) -> list[Figure]:
        seconds = ground.sizes.seconds
        hand, ours = ground.in_turn(
            lambda url: run_alone(publish, url, seconds),
            lambda url: run_alone(verbs.publish, url, seconds, 1),
        )
        return [compare_values("publish_two_inserts", "msg/s", hand, ours)]

    def bulk_two_inserts(ground: Ground) -> list[Figure]:
        count = ground.sizes.messages
        hand, ours = ground.in_turn(
            lambda url: run_alone(bulk, url, count),
            lambda url: run_alone(verbs.bulk, url, count),
        )
        return [compare_values("bulk_two_inserts", "msg/s", hand, ours)]

    return {
        ("publish_two_inserts",): publish_two_inserts,
        ("bulk_two_inserts",): bulk_two_inserts,
    }


SQLITE_MEASURES = make_measures(publish_on_sqlite, bulk_on_sqlite)
POSTGRES_MEASURES = make_measures(publish_on_postgres, bulk_on_postgres)
