"""PostgreSQL for the suite: one database a process, emptied for each test, its clock stopped."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from functools import cache
from itertools import count
from typing import Any

import asyncpg
import psycopg

from penstock import stores
from penstock.store import Store
from penstock.stores.postgres.connection import parse
from penstock.stores.postgres.store import make_store
from penstock.testing.simulation import START
from tests.conformance.warm import Connections, lend_connections
from tests.servers.postgres import Postgres

STILL = f"""
CREATE SCHEMA testing;
CREATE TABLE testing.clock (now bigint NOT NULL);
INSERT INTO testing.clock VALUES ({START});
CREATE OR REPLACE FUNCTION penstock.moment() RETURNS bigint LANGUAGE sql STABLE
    AS 'SELECT now FROM testing.clock';
CREATE TABLE testing.scope AS SELECT * FROM penstock.scope;
CREATE TABLE testing.queue AS SELECT * FROM penstock.queue;
"""
TABLES = (
    "message", "ready", "scheduled", "head", "lease", "dead", "history", "dedup", "name",
    "result", "schedule", "agent", "cursor", "worker", "scope", "queue", "document", "act", "hold",
    "nudge", "edge", "step", "signal",
)  # fmt: skip
DELETE = "".join(f"DELETE FROM penstock.{table};\n" for table in TABLES)
# Ten times slower than deleting a few rows, but leaves no dead rows behind.
TRUNCATE = f"TRUNCATE {', '.join(f'penstock.{table}' for table in TABLES)};\n"
TRUNCATE_EVERY = 50
RESET = f"""
INSERT INTO penstock.scope OVERRIDING SYSTEM VALUE SELECT * FROM testing.scope;
INSERT INTO penstock.queue OVERRIDING SYSTEM VALUE SELECT * FROM testing.queue;
SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence;
SELECT setval('penstock.scope_id_seq', 100, false), setval('penstock.queue_id_seq', 100, false);
UPDATE penstock.counter SET value = 0;
DROP INDEX IF EXISTS penstock.ready_type;
UPDATE testing.clock SET now = {START};
"""


WATCHED = (*TABLES, "counter", "fact")
DIGEST = (
    "SELECT coalesce(sum(hashtext(row)), 0) FROM ("
    + " UNION ALL ".join(
        f"SELECT '{table}' || xmin::text || t::text AS row FROM penstock.{table} AS t"
        for table in WATCHED
    )
    + ") AS rows"
)

tests = count()


# Its stubs leave out what is private.
driver: Any = asyncpg.Connection
introspect = driver._introspect_types
array_types: dict[frozenset[int], Any] = {}
open_connections: dict[str, psycopg.Connection[Any]] = {}


async def introspect_once(connection: Any, oids: Iterable[int], timeout: float | None) -> Any:
    """asyncpg looks up types of arrays on each connection, which takes longer than most tests.
    We use arrays of built-in types only, which are the same in every database."""
    asked = frozenset(oids)
    if asked not in array_types:
        array_types[asked] = await introspect(connection, asked, timeout)
    return array_types[asked]


@cache
def database(server: Postgres) -> str:
    """Made once: a store is opened in it, and its clock stopped."""
    url = server.create_database()

    async def make() -> None:
        async with await stores.open(url):
            pass

    # The test that asks has a loop of its own.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(asyncio.run, make()).result()
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(STILL.encode())
    return url


def outside(url: str) -> psycopg.Connection[Any]:
    """Opened once: a new backend takes longer to empty the tables than a warm one.

    Other tests of the process may have restarted the server.
    """
    if not is_alive(open_connections.get(url)):
        open_connections[url] = psycopg.connect(url, autocommit=True)
    return open_connections[url]


def is_alive(connection: psycopg.Connection[Any] | None) -> bool:
    if connection is None or connection.closed:
        return False
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        connection.close()
        return False
    return True


@cache
def read_secret(url: str) -> str:
    row = outside(url).execute("SELECT value FROM penstock.fact WHERE name = 'secret'").fetchone()
    assert row is not None
    return str(row[0])


class PostgresEngine:
    lasting = True
    still = True

    def __init__(self, server: Postgres) -> None:
        self.url = database(server)
        self.outside = outside(self.url)
        empty = TRUNCATE if next(tests) % TRUNCATE_EVERY == 0 else DELETE
        self.outside.execute((empty + RESET).encode())

    async def open(self) -> Store:
        driver._introspect_types = introspect_once
        return await stores.open(self.url)

    def open_warm(self, connections: Connections) -> AbstractAsyncContextManager[Store]:
        driver._introspect_types = introspect_once
        store = make_store(parse(self.url), read_secret(self.url))
        return lend_connections(store, connections.setdefault(PostgresEngine, []))

    async def travel(self, seconds: float) -> None:
        micros = round(seconds * 1_000_000)
        self.outside.execute("UPDATE testing.clock SET now = now + %s", (micros,))

    def version(self) -> int | None:
        """A digest of every row and of who wrote it: other ways to count writes count more."""
        row = self.outside.execute(DIGEST.encode()).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with closing(psycopg.connect(self.url)) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM pg_class")
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """There may be many at a time."""
        yield

    @contextmanager
    def caller(self) -> Iterator[Any]:
        with psycopg.connect(self.url) as connection:
            yield connection

    def close(self) -> None:
        """The next test empties the tables."""
