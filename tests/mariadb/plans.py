"""Databases of every size and shape, and how MariaDB would walk them for a statement."""

from collections.abc import Iterator
from typing import Any

import pymysql

from penstock.stores.mariadb.connection import SETTINGS
from penstock.stores.mariadb.statement import SQL, RawSql, fill_statement, to_tuples
from tests.servers.mariadb import MariaDB

NEVER = 2**53 - 1
TABLES = (
    "message", "ready", "scheduled", "lease", "dead", "history", "dedup", "name", "result", "head",
)  # fmt: skip
# Every fifth message is in one of the places, and every number of a row is its message's id.
FILL = f"""
INSERT INTO penstock_message (id, queue_id, type, priority, rank, created_at, body, meta)
SELECT seq, 2 + seq % :queues, concat('type', seq % 20), 0, seq % 7, seq, '',
       if(seq % 10 = 0, json_object('correlation_id', concat('c', seq)), NULL)
FROM seq_1_to_:rows;
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0, if(id % 50 = 0, {NEVER} - 1, {NEVER}), 0
FROM penstock_message WHERE id % 5 = 0;
INSERT INTO penstock_scheduled
    (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags, `key`, position)
SELECT if(id % 3 = 0, {NEVER}, id), id, queue_id, rank, type, 0, 0,
       if(id % 50 = 1, id, {NEVER}), 0, if(id % 3 = 0, concat('key', id % 1000), NULL), id
FROM penstock_message WHERE id % 5 = 1;
INSERT INTO penstock_lease (id, fence, queue_id, rank, type, attempts, deliveries, expires_at,
                            flags, consumer, claimed_at, lease_until, length)
SELECT id, id, queue_id, rank, type, 0, 1, {NEVER}, 0, 'c', id, id, 30 FROM penstock_message
WHERE id % 5 = 2;
INSERT INTO penstock_dead
    (id, queue_id, rank, type, attempts, deliveries, flags, dead_at, reason, error)
SELECT id, queue_id, rank, type, 1, 1, 0, id, 'rejected', 'no' FROM penstock_message
WHERE id % 5 = 3;
INSERT INTO penstock_history (id, queue_id, verb, state, attempts, deliveries, consumer, fence,
                              claimed_at, at, final)
SELECT id, queue_id, 'complete', 'completed', 1, 1, 'c', id, id, id, 1
FROM penstock_message WHERE id % 5 = 4
UNION ALL SELECT id, queue_id, 'nack', 'ready', 1, 1, 'c', id, id, id, NULL
FROM penstock_message WHERE id % 2 = 0;
INSERT INTO penstock_dedup (queue_id, `key`, id, digest, expires_at)
SELECT queue_id, concat('key', id), id, '', if(id % 8 = 0, {NEVER}, id)
FROM penstock_message WHERE id % 4 = 0;
INSERT INTO penstock_name (queue_id, name, id)
SELECT queue_id, concat('name', id), id FROM penstock_message WHERE id % 4 = 1;
INSERT INTO penstock_result (id, expires_at, body)
SELECT id, id, '' FROM penstock_message WHERE id % 5 = 4;
INSERT INTO penstock_head (queue_id, `key`, id)
SELECT queue_id, concat('key', id), id FROM penstock_message WHERE id % 20 = 2
"""
IDS = [7, 12, 17, 22]
# What the statements are asked with, by the names of their values.
VALUES: dict[str, Any] = {
    "above": 0, "after": 10, "any_type": True, "as_of": 10, "before": 20, "begins": True, "by": "b",
    "correlation": "c10", "consumer": "c", "due_by": 10, "ended": 10, "everywhere": False,
    "expired_by": 2**62, "first": 10, "full": True,
    "fence": 7, "flags": 0, "given": RawSql("SELECT 7 AS id, 7 AS fence, '' AS body"), "id": 7,
    "ids": IDS, "array": "[7,12]", "key": "key7", "keys": ["key7", "key12"], "last": 50,
    "awaited": IDS, "length": 30, "limit": 10, "looks": 1, "position": 10,
    "locks": RawSql("fence = 7 AND id IN (7,12) OR fence = 22 AND id IN (22,27)"), "moment": 1,
    "more": 10, "most": 10, "name": "name9", "note": "n", "now": 10, "number": 1, "pause": 0.001,
    "percent": 0.5, "queue": 2, "queue_id": 2, "queues": [2, 3], "rank": 1, "seen": 10,
    "slots": [1, 2], "state": "completed", "tickets": to_tuples([(2, 1, 8), (2, 1, 15)]),
    "kind": "paper", "type": "type5", "types": ["type5", "type6"], "body": "", "at": 1,
    "scope": "default", "tenant": "default", "settings": "{}", "mask": 1, "verb": "redrive",
    "reason": None, "error": None, "final": False,
}  # fmt: skip
# Before all others: what they begin with is set by the statements before them.
BEGIN = "SELECT 10, 7, 10, 10 INTO @now, @fence, @at, @final"


def connect(server: MariaDB, url: str) -> pymysql.Connection:
    """A session as the store's own are."""
    connection = server.connect(url.rpartition("/")[2])
    settings = ", ".join(f"SESSION {name} = {value}" for name, value in SETTINGS.items())
    with connection.cursor() as cursor:
        cursor.execute(f"SET {settings}")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(BEGIN)
    return connection


def run(connection: pymysql.Connection, *texts: str) -> None:
    with connection.cursor() as cursor:
        for text in texts:
            cursor.execute(text)


def fill(connection: pymysql.Connection, rows: int, queues: int) -> None:
    """Statistics are part of the shape: nobody but a test makes them."""
    for table in TABLES:
        run(connection, f"ALTER TABLE penstock_{table} STATS_AUTO_RECALC = 0")
        run(connection, f"ANALYZE TABLE penstock_{table}")
    for text in FILL.replace(":rows", str(rows)).replace(":queues", str(queues)).split(";\n"):
        run(connection, text)


def analyse(connection: pymysql.Connection) -> None:
    run(connection, *(f"ANALYZE TABLE penstock_{table}" for table in TABLES))


def walk(connection: pymysql.Connection, name: str) -> list[str]:
    """Each table that a statement reads, by its name there, and how; in no order."""
    values = VALUES | {"picks": RawSql(fill_statement("pick", queue=2, limit=10))}
    if name == "claim_dead":
        values["picks"] = RawSql(fill_statement("pick_dead", **VALUES))
    if name == "find_all":
        values["type"] = None
    text = fill_statement(name, **{value: values[value] for value in SQL[name].names})
    return sorted(step for part in text.split(";\n") for step in steps(connection, part))


def steps(connection: pymysql.Connection, text: str) -> Iterator[str]:
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"EXPLAIN {text.replace('INTO @fence, @at', '')}")
        for row in cursor.fetchall():
            table, way, key = row["table"], row["type"], row["key"]
            # Where rows are put nothing is read; lists that we give are no tables.
            if way is None or row["select_type"] == "INSERT" or table in ("gone", "given"):
                continue
            if table.startswith("<"):
                continue
            yield f"{table} end to end" if way in ("ALL", "index") else f"{table} by {key}"
