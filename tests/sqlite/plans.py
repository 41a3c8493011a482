"""Databases of every size and shape, and how SQLite would walk them for a statement."""

import re
import sqlite3

from penstock.stores.sqlite.connection import connect, set_up
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.transaction import SQL

# Every fifth message is in one of the places, and every number of a row is its message's id.
FILL = """
INSERT INTO penstock_message (id, queue_id, type, priority, rank, created_at, body, meta)
WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < :rows)
SELECT i, 2 + i % :queues, 'type' || i % 20, 0, i % 7, i, x'00',
       CASE WHEN i % 10 = 0 THEN json_object('correlation_id', 'c' || i) END FROM number;
INSERT INTO penstock_ready SELECT queue_id, rank, id, type, 0, 0,
    CASE WHEN id % 50 = 0 THEN id ELSE :never END, 0 FROM penstock_message WHERE id % 5 = 0;
INSERT INTO penstock_scheduled
SELECT CASE WHEN id % 3 = 0 THEN :never ELSE id END, id, queue_id, rank,
    type, 0, 0, CASE WHEN id % 50 = 1 THEN id ELSE :never END, 0,
    CASE WHEN id % 3 = 0 THEN 'key' || id % 1000 END, id FROM penstock_message WHERE id % 5 = 1;
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags,
                   consumer, claimed_at, lease_until, length)
SELECT id, id, queue_id, rank, type, 0, 1, :never, 0, 'c', id, id, 30 FROM penstock_message
WHERE id % 5 = 2;
INSERT INTO penstock_dead SELECT id, queue_id, rank, type, 1, 1, 0, id, 'rejected', 'no'
FROM penstock_message WHERE id % 5 = 3;
INSERT INTO penstock_history
    (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at,
                     at, final)
SELECT id, queue_id, 'complete', 'completed', 1, 1, 'c', id, id, id, 1
FROM penstock_message WHERE id % 5 = 4
UNION ALL SELECT id, queue_id, 'nack', 'ready', 1, 1, 'c', id, id, id, 0
FROM penstock_message WHERE id % 2 = 0;
INSERT INTO penstock_dedup SELECT queue_id, 'key' || id, id, x'00',
    CASE WHEN id % 8 = 0 THEN :never ELSE id END FROM penstock_message WHERE id % 4 = 0;
INSERT INTO penstock_name SELECT queue_id, 'name' || id, id FROM penstock_message WHERE id % 4 = 1;
INSERT INTO penstock_result SELECT id, id, x'00' FROM penstock_message WHERE id % 5 = 4;
INSERT INTO penstock_head SELECT queue_id, 'key' || id, id FROM penstock_message WHERE id % 20 = 2;
"""


def database(rows: int, queues: int = 10, *, analysed: bool = False) -> sqlite3.Connection:
    db = connect(":memory:", "safe")
    set_up(db, read_system_clock, "safe")
    if rows:
        db.execute("BEGIN")
        for statement in FILL.strip().removesuffix(";").split(";"):
            bound = {"rows": rows, "queues": queues, "never": 2**53 - 1}
            names = set(parameters(statement))
            db.execute(statement, {name: bound[name] for name in bound if name in names})
        db.execute("COMMIT")
    if analysed:
        db.execute("ANALYZE")
        # The connection that analysed plans with it only after it read the schema again.
        db.execute("ANALYZE sqlite_schema")
    return db


def parameters(statement: str) -> dict[str, int] | list[int]:
    """Something to bind, so that the statement can be prepared."""
    bare = re.sub(r"'[^']*'|--.*", "", statement)
    names = re.findall(r":([a-z_]+)", bare)
    return dict.fromkeys(names, 1) if names else [1] * bare.count("?")


def plan(db: sqlite3.Connection, name: str) -> list[str]:
    """The steps of a statement, with the names of tables and indexes less their prefix."""
    rows = db.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters(SQL[name])).fetchall()
    return [detail.replace("penstock_", "") for *_, detail in rows]
