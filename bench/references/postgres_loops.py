"""The hand-written loops on PostgreSQL: one table, asyncpg, one connection, safe on power loss."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg

from bench.processes import Start
from bench.verbs import run
from bench.workload import BULK, WARM_UP, make_bodies, make_body

BATCH = 100
CHANNEL = "q"
# A lost notification must not stop the loop.
POLL = 1.0

Connection: TypeAlias = "asyncpg.Connection[Any]"
Statement: TypeAlias = "asyncpg.prepared_stmt.PreparedStatement[Any]"
Rows: TypeAlias = Sequence[Any]

TABLE = """
CREATE TABLE IF NOT EXISTS q (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload text NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(),
    claimed_at timestamptz,
    token uuid
)
"""
INDEX = "CREATE INDEX IF NOT EXISTS q_ready ON q (id) WHERE state = 0"
INSERT = "INSERT INTO q (payload) VALUES ($1)"
INSERT_MANY = "INSERT INTO q (payload) SELECT * FROM unnest($1::text[])"
INSERT_AND_WAKE = f"""
WITH inserted AS (INSERT INTO q (payload) VALUES ($1) RETURNING id)
SELECT pg_notify('{CHANNEL}', '') FROM inserted
"""
CLAIM = f"""
WITH due AS (
    SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED
)
UPDATE q SET state = 1, claimed_at = now(), token = $1::uuid FROM due WHERE q.id = due.id
RETURNING q.id, q.payload
"""
DELETE = "DELETE FROM q WHERE id = ANY ($1::bigint[]) AND token = $2::uuid"


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    # Even IF NOT EXISTS would wait for sessions that have prepared a statement.
    if await connection.fetchval("SELECT to_regclass('q_ready')") is None:
        await connection.execute(TABLE)
        await connection.execute(INDEX)
    try:
        yield connection
    finally:
        await connection.close()


def publish_one(start: Start, url: str, seconds: float) -> float:
    """Returns rows per second, one row per transaction."""
    return run(_publish_one(start, url, seconds))


async def _publish_one(start: Start, url: str, seconds: float) -> float:
    async with open_connection(url) as connection:
        insert, texts = await connection.prepare(INSERT), make_bodies(BULK)
        for text in texts[:WARM_UP]:
            await insert.fetch(text)
        start()
        began = time.monotonic()
        count = 0
        while (elapsed := time.monotonic() - began) < seconds:
            await insert.fetch(texts[count % BULK])
            count += 1
        return count / elapsed


def bulk(start: Start, url: str, count: int) -> float:
    """Returns rows per second, 1000 rows per transaction."""
    return run(_bulk(start, url, count))


async def _bulk(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as connection:
        insert, texts = await connection.prepare(INSERT_MANY), make_bodies(BULK)
        await insert.fetch(texts)
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            await insert.fetch(texts)
        return count / (time.monotonic() - began)


def fill(start: Start, url: str, count: int) -> None:
    run(_fill(start, url, count))


async def _fill(start: Start, url: str, count: int) -> None:
    async with open_connection(url) as connection:
        insert, texts = await connection.prepare(INSERT_MANY), make_bodies(BULK)
        start()
        for done in range(0, count, BULK):
            await insert.fetch(texts[: count - done])
        # Gives the loop below the best plan.
        await connection.execute("ANALYZE q")


def drain(start: Start, url: str, count: int) -> float:
    """Returns rows per second, claimed and deleted 100 at a time."""
    return run(_drain(start, url, count))


async def _drain(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as connection:
        loop = await Loop.prepared(connection)
        for _ in range(WARM_UP // BATCH):
            await loop.turn()
        start()
        began = time.monotonic()
        done = 0
        while done < count:
            done += await loop.turn()
        return done / (time.monotonic() - began)


class Loop:
    """Claims and deletes under one token."""

    def __init__(self, claim: Statement, delete: Statement) -> None:
        self.claim_statement, self.delete_statement = claim, delete
        self.token = uuid4()

    @classmethod
    async def prepared(cls, connection: Connection) -> "Loop":
        return cls(await connection.prepare(CLAIM), await connection.prepare(DELETE))

    async def turn(self) -> int:
        rows = await self.claim()
        for _, payload in rows:
            json.loads(payload)
        await self.delete(rows)
        return len(rows)

    async def claim(self) -> Rows:
        return await self.claim_statement.fetch(self.token)

    async def delete(self, rows: Rows) -> None:
        if rows:
            await self.delete_statement.fetch([id for id, _ in rows], self.token)


def send(start: Start, url: str, count: int, pause: float) -> list[float]:
    """Publishes bodies that contain their send time."""
    return run(_send(start, url, count, pause))


async def _send(start: Start, url: str, count: int, pause: float) -> list[float]:
    async with open_connection(url) as connection:
        insert = await connection.prepare(INSERT_AND_WAKE)
        await asyncio.to_thread(start)
        for number in range(count):
            await asyncio.sleep(pause)
            await insert.fetch(make_body(number, time.monotonic()))
    return []


def receive(start: Start, url: str, count: int) -> list[float]:
    """Returns the seconds from each insert to its claim in this process."""
    return run(_receive(start, url, count))


async def _receive(start: Start, url: str, count: int) -> list[float]:
    waits: list[float] = []
    bell = asyncio.Event()
    async with open_connection(url) as connection, open_connection(url) as listener:
        await listener.add_listener(CHANNEL, lambda *_: bell.set())
        loop = await Loop.prepared(connection)
        await asyncio.to_thread(start)
        while len(waits) < count:
            bell.clear()
            rows = await loop.claim()
            now = time.monotonic()
            waits += [now - json.loads(payload)["sent_at"] for _, payload in rows]
            await loop.delete(rows)
            if not rows:
                await heard(bell)
    return waits


async def heard(bell: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL):
            await bell.wait()
