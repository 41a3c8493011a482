"""The hand-written loops on SQLite: one table, the standard library, safe on power loss."""

import json
import os
import sqlite3
import time
from collections.abc import Sequence

from bench.processes import Start
from bench.workload import BULK, WARM_UP, bodies

BATCH = 100

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
DELETE = "DELETE FROM q WHERE id = ? AND token = ?"


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    connection.execute(INDEX)
    return connection


def publish_one(start: Start, path: str, seconds: float) -> float:
    """Rows a second, one row a transaction."""
    connection, texts = connect(path), bodies(BULK)
    for text in texts[:WARM_UP]:
        connection.execute(INSERT, (text,))
    start()
    began = time.monotonic()
    count = 0
    while (elapsed := time.monotonic() - began) < seconds:
        connection.execute(INSERT, (texts[count % BULK],))
        count += 1
    return count / elapsed


def bulk(start: Start, path: str, count: int) -> float:
    """Rows a second, 1000 rows a transaction."""
    connection, texts = connect(path), bodies(BULK)
    insert_many(connection, texts)
    start()
    began = time.monotonic()
    for _ in range(count // BULK):
        insert_many(connection, texts)
    return count / (time.monotonic() - began)


def fill(start: Start, path: str, count: int) -> None:
    connection, texts = connect(path), bodies(BULK)
    start()
    for done in range(0, count, BULK):
        insert_many(connection, texts[: count - done])
    connection.close()


def insert_many(connection: sqlite3.Connection, texts: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, [(text,) for text in texts])
    connection.execute("COMMIT")


def drain(start: Start, path: str, count: int) -> float:
    """Rows a second, claimed and deleted 100 at a time."""
    connection, token = connect(path), os.urandom(16)
    for _ in range(WARM_UP // BATCH):
        take(connection, token)
    start()
    began = time.monotonic()
    done = 0
    while done < count:
        done += take(connection, token)
    return done / (time.monotonic() - began)


def take(connection: sqlite3.Connection, token: bytes) -> int:
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(CLAIM, (time.time(), token, BATCH)).fetchall()
    connection.execute("COMMIT")
    for _, payload in rows:
        json.loads(payload)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(DELETE, [(id, token) for id, _ in rows])
    connection.execute("COMMIT")
    return len(rows)
