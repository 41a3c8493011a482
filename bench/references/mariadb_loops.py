"""The hand-written loops on MariaDB: tickets move from table to table, on one connection."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncmy

from bench.processes import Start
from bench.verbs import run
from bench.workload import BULK, WARM_UP, make_bodies, make_body

BATCH = 100
# Polls, because MariaDB has no notifications.
POLL = 0.01

Cursor: TypeAlias = Any
Rows: TypeAlias = Sequence[Any]

TABLES = (
    "CREATE TABLE IF NOT EXISTS message (id bigint AUTO_INCREMENT PRIMARY KEY, body text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ready (id bigint PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS lease (id bigint PRIMARY KEY, token bigint NOT NULL,"
    " until datetime(3) NOT NULL, KEY (until))",
    "CREATE TABLE IF NOT EXISTS done (id bigint PRIMARY KEY, at datetime(3) NOT NULL)",
    "CREATE SEQUENCE IF NOT EXISTS token CACHE 1000",
)
PICK = f"SELECT id FROM ready ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Cursor]:
    place = urlsplit(url)
    async with asyncmy.connect(
        host=place.hostname, port=place.port, user=place.username,
        database=place.path.removeprefix("/"), autocommit=True,
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await cursor.execute("SHOW TABLES LIKE 'token'")
        if not await cursor.fetchall():
            for table in TABLES:
                await cursor.execute(table)
        yield cursor


async def insert(cursor: Cursor, texts: Sequence[str]) -> None:
    """Passes the rows separately, so that the driver sends them as one statement."""
    await cursor.execute("BEGIN")
    await cursor.executemany("INSERT INTO message (body) VALUES (%s)", [(text,) for text in texts])
    first = cursor.lastrowid
    await cursor.execute(
        f"INSERT INTO ready SELECT id FROM message WHERE id BETWEEN {first}"
        f" AND {first + len(texts) - 1}"
    )
    await cursor.execute("COMMIT")


async def insert_one(cursor: Cursor, text: str) -> None:
    await cursor.execute("BEGIN")
    await cursor.execute("INSERT INTO message (body) VALUES (%s)", (text,))
    await cursor.execute("INSERT INTO ready VALUES (last_insert_id())")
    await cursor.execute("COMMIT")


def publish_one(start: Start, url: str, seconds: float) -> float:
    """Returns messages per second, one per transaction."""
    return run(_publish_one(start, url, seconds))


async def _publish_one(start: Start, url: str, seconds: float) -> float:
    async with open_connection(url) as cursor:
        texts = make_bodies(BULK)
        for text in texts[:WARM_UP]:
            await insert_one(cursor, text)
        start()
        began = time.monotonic()
        count = 0
        while (elapsed := time.monotonic() - began) < seconds:
            await insert_one(cursor, texts[count % BULK])
            count += 1
        return count / elapsed


def bulk(start: Start, url: str, count: int) -> float:
    """Returns messages per second, 1000 per transaction."""
    return run(_bulk(start, url, count))


async def _bulk(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as cursor:
        texts = make_bodies(BULK)
        await insert(cursor, texts)
        start()
        began = time.monotonic()
        for _ in range(count // BULK):
            await insert(cursor, texts)
        return count / (time.monotonic() - began)


def fill(start: Start, url: str, count: int) -> None:
    run(_fill(start, url, count))


async def _fill(start: Start, url: str, count: int) -> None:
    async with open_connection(url) as cursor:
        texts = make_bodies(BULK)
        start()
        for done in range(0, count, BULK):
            await insert(cursor, texts[: count - done])


def drain(start: Start, url: str, count: int) -> float:
    """Returns messages per second, claimed and acknowledged 100 at a time."""
    return run(_drain(start, url, count))


async def _drain(start: Start, url: str, count: int) -> float:
    async with open_connection(url) as cursor:
        for _ in range(WARM_UP // BATCH):
            await turn(cursor)
        start()
        began = time.monotonic()
        done = 0
        while done < count:
            done += await turn(cursor)
        return done / (time.monotonic() - began)


async def turn(cursor: Cursor) -> int:
    token, rows = await claim(cursor)
    for _, text in rows:
        json.loads(text)
    await acknowledge(cursor, token, rows)
    return len(rows)


async def claim(cursor: Cursor) -> tuple[int, Rows]:
    await cursor.execute("BEGIN")
    await cursor.execute(PICK)
    ids = [id for (id,) in await cursor.fetchall()]
    if not ids:
        await cursor.execute("COMMIT")
        return 0, []
    await cursor.execute("SELECT nextval(token)")
    ((token,),) = await cursor.fetchall()
    leases = ",".join(f"({id},{token},now(3) + INTERVAL 30 SECOND)" for id in ids)
    await cursor.execute(f"INSERT INTO lease VALUES {leases}")
    await cursor.execute(f"DELETE FROM ready WHERE id IN ({join_ids(ids)})")
    await cursor.execute("COMMIT")
    await cursor.execute(f"SELECT id, body FROM message WHERE id IN ({join_ids(ids)})")
    return token, await cursor.fetchall()


async def acknowledge(cursor: Cursor, token: int, rows: Rows) -> None:
    if not rows:
        return
    ids = join_ids([id for id, _ in rows])
    await cursor.execute("BEGIN")
    await cursor.execute(f"DELETE FROM lease WHERE id IN ({ids}) AND token = {token} RETURNING id")
    ended = ",".join(f"({id},now(3))" for (id,) in await cursor.fetchall())
    await cursor.execute(f"INSERT INTO done VALUES {ended}")
    await cursor.execute("COMMIT")


def join_ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def send(start: Start, url: str, count: int, pause: float) -> list[float]:
    """Publishes bodies that contain their send time."""
    return run(_send(start, url, count, pause))


async def _send(start: Start, url: str, count: int, pause: float) -> list[float]:
    async with open_connection(url) as cursor:
        await asyncio.to_thread(start)
        for number in range(count):
            await asyncio.sleep(pause)
            await insert_one(cursor, make_body(number, time.monotonic()))
    return []


def receive(start: Start, url: str, count: int) -> list[float]:
    """Returns the seconds from each insert to its claim in this process."""
    return run(_receive(start, url, count))


async def _receive(start: Start, url: str, count: int) -> list[float]:
    waits: list[float] = []
    async with open_connection(url) as cursor:
        await asyncio.to_thread(start)
        while len(waits) < count:
            token, rows = await claim(cursor)
            now = time.monotonic()
            waits += [now - json.loads(text)["sent_at"] for _, text in rows]
            await acknowledge(cursor, token, rows)
            if not rows:
                await asyncio.sleep(POLL)
    return waits
