"""MariaDB for the suite: one database a process, emptied for each test, its clock stopped."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from functools import cache
from typing import Any

import msgspec

from penstock.store import Store
from penstock.stores.mariadb.connection import parse
from penstock.stores.mariadb.store import make_store, open_at
from penstock.testing.simulation import START
from tests.conformance.warm import Connections, lend_connections
from tests.servers.mariadb import MariaDB

STILL = f"""
CREATE TABLE testing_clock (now BIGINT NOT NULL);
INSERT INTO testing_clock VALUES ({START});
CREATE TABLE testing_scope AS SELECT * FROM penstock_scope;
CREATE TABLE testing_queue AS SELECT id, scope_id, name, state, settings FROM penstock_queue;
"""
TABLES = (
    "message", "ready", "scheduled", "head", "lease", "dead", "history", "dedup", "name",
    "result", "schedule", "agent", "cursor", "worker", "scope", "queue", "generation",
    "document", "act", "hold", "nudge", "edge", "step", "signal",
)  # fmt: skip
EMPTY = (
    "".join(f"DELETE FROM penstock_{table};\n" for table in TABLES)
    + f"""
INSERT INTO penstock_scope SELECT * FROM testing_scope;
INSERT INTO penstock_queue (id, scope_id, name, state, settings) SELECT * FROM testing_queue;
INSERT INTO penstock_generation VALUES (1, 0, 0);
UPDATE penstock_counter SET value = 0;
DROP INDEX IF EXISTS type ON penstock_ready;
UPDATE testing_clock SET now = {START};
"""
)
WRITES = """
SELECT sum(variable_value) FROM information_schema.global_status
WHERE variable_name IN ('handler_write', 'handler_update', 'handler_delete')
"""


@cache
def database(server: MariaDB) -> str:
    """Made once: a store is opened in it, and its clock stopped."""
    url = server.create_database()

    async def make() -> None:
        async with await open_at(parse(url)):
            pass

    # The test that asks has a loop of its own.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(asyncio.run, make()).result()
    server.execute(STILL, name_of(url))
    return url


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


class MariadbEngine:
    lasting = True
    still = True

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        # MariaDB 10.11 may crash when a connection is closed while it reads its schema.
        server.ensure_running()
        self.url = database(server)
        address = parse(self.url)
        self.address = msgspec.structs.replace(address, moment="(SELECT now FROM testing_clock)")
        self.outside = server.connect(name_of(self.url))
        self.run(EMPTY)

    def run(self, text: str) -> list[tuple[object, ...]]:
        with self.outside.cursor() as cursor:
            cursor.execute(text)
            while cursor.nextset():
                pass
            return list(cursor.fetchall())

    async def open(self) -> Store:
        return await open_at(self.address)

    def open_warm(self, connections: Connections) -> AbstractAsyncContextManager[Store]:
        ((secret,),) = self.run("SELECT value FROM penstock_fact WHERE name = 'secret'")
        store = make_store(self.address, str(secret))
        return lend_connections(store, connections.setdefault(MariadbEngine, []))

    async def travel(self, seconds: float) -> None:
        self.run(f"UPDATE testing_clock SET now = now + {round(seconds * 1_000_000)}")

    def version(self) -> int | None:
        """How many rows the server has written."""
        ((count,),) = self.run(WRITES)
        return int(str(count).partition(".")[0])

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with closing(self.server.connect(name_of(self.url))) as reader, reader.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """There may be many at a time."""
        yield

    @contextmanager
    def caller(self) -> Iterator[Any]:
        with closing(self.server.connect(name_of(self.url))) as connection:
            connection.begin()
            yield connection
            connection.commit()

    def close(self) -> None:
        self.outside.close()
