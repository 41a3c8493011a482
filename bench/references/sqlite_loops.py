"""The hand-written loops on SQLite: one table, the standard library, safe on power loss."""

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from typing import TypeAlias

from bench.processes import Start
from bench.workload import BULK, WARM_UP, make_bodies, make_body

BATCH = 100
POLL = 0.001
Rows: TypeAlias = list[tuple[int, str]]

TABLE = """
CREATE TABLE IF NOT EXISTS q (
    id INTEGER PRIMARY KEY,
    payload TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    claimed_at REAL,
    token BLOB
)
"""
INDEX = "CREATE INDEX IF NOT EXISTS q_ready ON q (id) WHERE state = 0"
INSERT = "INSERT INTO q (payload) VALUES (?)"
CLAIM = """
UPDATE q SET state = 1, claimed_at = ?, token = ?
WHERE id IN (SELECT id FROM q WHERE state = 0 ORDER BY id LIMIT ?)
RETURNING id, payload
"""
PEEK = "SELECT 1 FROM q WHERE state = 0 LIMIT 1"
DELETE = "DELETE FROM q WHERE id = ? AND token = ?"


def connect(url: str) -> sqlite3.Connection:
    path = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    connection.execute(INDEX)
    return connection


def publish_one(start: Start, url: str, seconds: float) -> float:
    """Returns rows per second, one row per transaction."""
    connection, texts = connect(url), make_bodies(BULK)
    for text in texts[:WARM_UP]:
        connection.execute(INSERT, (text,))
    start()
    began = time.monotonic()
    count = 0
    while (elapsed := time.monotonic() - began) < seconds:
        connection.execute(INSERT, (texts[count % BULK],))
        count += 1
    return count / elapsed


def bulk(start: Start, url: str, count: int) -> float:
    """Returns rows per second, 1000 rows per transaction."""
    connection, texts = connect(url), make_bodies(BULK)
    insert_many(connection, texts)
    start()
    began = time.monotonic()
    for _ in range(count // BULK):
        insert_many(connection, texts)
    return count / (time.monotonic() - began)


def fill(start: Start, url: str, count: int) -> None:
    connection, texts = connect(url), make_bodies(BULK)
    start()
    for done in range(0, count, BULK):
        insert_many(connection, texts[: count - done])
    connection.close()


def insert_many(connection: sqlite3.Connection, texts: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, [(text,) for text in texts])
    connection.execute("COMMIT")


def drain(start: Start, url: str, count: int) -> float:
    """Returns rows per second, claimed and deleted 100 at a time."""
    connection, token = connect(url), os.urandom(16)
    for _ in range(WARM_UP // BATCH):
        take(connection, token)
    start()
    began = time.monotonic()
    done = 0
    while done < count:
        done += take(connection, token)
    return done / (time.monotonic() - began)


def take(connection: sqlite3.Connection, token: bytes) -> int:
    rows = claim(connection, token)
    for _, payload in rows:
        json.loads(payload)
    delete(connection, token, rows)
    return len(rows)


def claim(connection: sqlite3.Connection, token: bytes) -> Rows:
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(CLAIM, (time.time(), token, BATCH)).fetchall()
    connection.execute("COMMIT")
    return rows


def delete(connection: sqlite3.Connection, token: bytes, rows: Rows) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(DELETE, [(id, token) for id, _ in rows])
    connection.execute("COMMIT")


def send(start: Start, url: str, count: int, pause: float) -> list[float]:
    """Publishes bodies that contain their send time."""
    connection = connect(url)
    start()
    for number in range(count):
        sleep(pause)
        connection.execute(INSERT, (make_body(number, time.monotonic()),))
    return []


def receive(start: Start, url: str, count: int) -> list[float]:
    """Returns the seconds from each insert to its claim in this process, which polls."""
    connection, token = connect(url), os.urandom(16)
    waits: list[float] = []
    start()
    while len(waits) < count:
        if connection.execute(PEEK).fetchone() is None:
            sleep(POLL)
            continue
        rows = claim(connection, token)
        now = time.monotonic()
        waits += [now - json.loads(payload)["sent_at"] for _, payload in rows]
        delete(connection, token, rows)
    return waits


def sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 - a benchmark uses the real clock
