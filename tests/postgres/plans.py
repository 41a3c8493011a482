"""Databases of every size and shape, and how PostgreSQL would walk them for a statement."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TypeAlias

import psycopg

from penstock.stores.postgres.connection import SETTINGS
from penstock.stores.postgres.transaction import CLAIMS, SQL, PostgresStatement

NEVER = 2**53 - 1
# Every fifth message is in one of the places, and every number of a row is its message's id.
FILL = f"""
INSERT INTO penstock.message (id, queue_id, type, priority, rank, created_at, body, meta)
SELECT i, 2 + i %% %(queues)s, 'type' || i %% 20, 0, i %% 7, i, '',
       CASE WHEN i %% 10 = 0 THEN json_build_object('correlation_id', 'c' || i) END
FROM generate_series(%(first)s, %(last)s) AS i;
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0, CASE WHEN id %% 50 = 0 THEN {NEVER} - 1 ELSE {NEVER} END, 0
FROM penstock.message WHERE id %% 5 = 0 AND id >= %(first)s;
INSERT INTO penstock.scheduled
    (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags, key, position)
SELECT CASE WHEN id %% 3 = 0 THEN {NEVER} ELSE id END, id, queue_id, rank, type, 0, 0,
       CASE WHEN id %% 50 = 1 THEN id ELSE {NEVER} END, 0,
       CASE WHEN id %% 3 = 0 THEN 'key' || id %% 1000 END, id
FROM penstock.message WHERE id %% 5 = 1 AND id >= %(first)s;
INSERT INTO penstock.lease (id, fence, queue_id, rank, attempts, deliveries, flags, consumer,
                            claimed_at, lease_until, length)
SELECT id, id, queue_id, rank, 0, 1, 0, 'c', id, id, 30 FROM penstock.message
WHERE id %% 5 = 2 AND id >= %(first)s;
INSERT INTO penstock.dead
    (id, queue_id, rank, type, attempts, deliveries, flags, dead_at, reason, error)
SELECT id, queue_id, rank, type, 1, 1, 0, id, 'rejected', 'no' FROM penstock.message
WHERE id %% 5 = 3 AND id >= %(first)s;
INSERT INTO penstock.history (id, queue_id, verb, state, attempts, deliveries, consumer, fence,
                              claimed_at, at, final)
SELECT id, queue_id, 'complete'::penstock.verb, 'completed'::penstock.state, 1, 1, 'c', id, id,
       id, true
FROM penstock.message WHERE id %% 5 = 4 AND id >= %(first)s
UNION ALL SELECT id, queue_id, 'nack', 'ready', 1, 1, 'c', id, id, id, false
FROM penstock.message WHERE id %% 2 = 0 AND id >= %(first)s;
INSERT INTO penstock.dedup (queue_id, key, id, digest, expires_at)
SELECT queue_id, 'key' || id, id, '', CASE WHEN id %% 8 = 0 THEN {NEVER} ELSE id END
FROM penstock.message WHERE id %% 4 = 0 AND id >= %(first)s;
INSERT INTO penstock.name (queue_id, name, id)
SELECT queue_id, 'name' || id, id FROM penstock.message WHERE id %% 4 = 1 AND id >= %(first)s;
INSERT INTO penstock.result (id, expires_at, body)
SELECT id, id, '' FROM penstock.message WHERE id %% 5 = 4 AND id >= %(first)s;
INSERT INTO penstock.head (queue_id, key, id)
SELECT queue_id, 'key' || id, id FROM penstock.message WHERE id %% 20 = 2 AND id >= %(first)s;
"""
TABLES = (
    "message", "ready", "scheduled", "lease", "dead", "history", "dedup", "name", "result", "head",
)  # fmt: skip
BOUND = re.compile(r"(\w+)\"?(?:::\w+)?\)? (?:=|<|>|<=|>=) ")
# As feed.py asks for them.
BY_STRETCHES = (
    "feed_messages", "heads_messages", "feed_history", "messages_between", "history_between",
    "digest_messages", "digest_history", "history_of",
    "message_columns", "history_columns", "recent", "past", "prunable",
)  # fmt: skip
INDEX_TYPES = SQL["index_types"].text
STATEMENTS: dict[str, PostgresStatement] = {
    name: statement
    for name, statement in (SQL | CLAIMS).items()
    # A part of others, and one that is no query.
    if name not in ("claim", "index_types")
}

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Node: TypeAlias = dict[str, Any]


def connect(url: str) -> Connection:
    """A session as the store's own are."""
    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    return psycopg.connect(url, autocommit=True, options=options)


def fill(url: str, rows: int, queues: int = 10, start: int = 0) -> None:
    with closing(connect(url)) as connection:
        # Statistics are part of the shape: nobody but a test makes them.
        for table in TABLES:
            off = f"ALTER TABLE penstock.{table} SET (autovacuum_enabled = off)"
            connection.execute(off.encode())
        cursor = psycopg.ClientCursor(connection)
        for statement in FILL.strip().removesuffix(";").split(";") if rows else ():
            bound = {"first": start + 1, "last": start + rows, "queues": queues}
            cursor.execute(statement.encode(), bound)
        # The numbers of the rows are taken.
        cursor.execute("SELECT setval('penstock.message_id', %s)", (start + rows + 1,))


def empty(connection: Connection) -> None:
    """All that comes and goes has gone, and the server has cleared it away."""
    for table in ("ready", "scheduled", "lease"):
        connection.execute(f"DELETE FROM penstock.{table}".encode())
        connection.execute(f"VACUUM ANALYZE penstock.{table}".encode())


def prepare(connection: Connection, name: str) -> None:
    connection.execute(f"PREPARE {name} AS {STATEMENTS[name].text}".encode())


def walk(connection: Connection, name: str) -> list[str]:
    """Each table of messages that a statement reads, and how; in no order."""
    prepare(connection, name)
    values = ", ".join(["NULL"] * len(STATEMENTS[name].names))
    with connection.transaction():
        if name in BY_STRETCHES:
            connection.execute("SET LOCAL enable_bitmapscan = on")
        found = explain(connection, f"EXPLAIN (FORMAT JSON) EXECUTE {name}({values})")
    connection.execute(f"DEALLOCATE {name}".encode())
    return sorted(step for node in nodes(found) if (step := step_of(node)))


def explain(connection: Connection, statement: str, *values: object) -> Node:
    asked = statement if "NULL" in statement or values else statement.replace("()", "")
    row = psycopg.ClientCursor(connection).execute(asked.encode(), values or None).fetchone()
    assert row is not None
    found: Node = row[0][0]["Plan"]
    return found


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def step_of(node: Node) -> str | None:
    """None if it reads no table, or one with a row for each queue, agent, worker or export."""
    step = read_by(node)
    return step if step is not None and step.split()[0].split("_")[0] in TABLES else None


def read_by(node: Node) -> str | None:
    match node["Node Type"]:
        case "Seq Scan":
            return f"{node['Relation Name']} from end to end"
        case "Tid Scan":
            return f"{node['Relation Name']} by place"
        case "Index Scan" | "Index Only Scan" | "Bitmap Index Scan":
            # The columns it is entered by; of one without, the order is all that is used.
            columns = dict.fromkeys(BOUND.findall(node.get("Index Cond", "")))
            return f"{node['Index Name']} ({', '.join(columns)})"
    return None


def buffers(connection: Connection, name: str, values: dict[str, Any]) -> int:
    """How many pages a prepared statement touches. What it did is undone."""
    names = STATEMENTS[name].names
    places = ", ".join(["%s"] * len(names))
    statement = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name}({places})"
    with connection.transaction(force_rollback=True):
        plan = explain(connection, statement, *(values[each] for each in names))
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
