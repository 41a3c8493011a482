"""Benchmarks PostgreSQL: a private server on disk with default settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.references import postgres_loops
from bench.subjects import Peer, Reference
from bench.usage import Usage, read_server_seconds
from tests.servers import postgres

LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database"
# A backend reports its statistics when it ends, shortly after its client.
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Postgres:
    """Gives each run its own database. The server stops with this process."""

    name = "postgres"
    reference: Reference = postgres_loops
    peer: Peer | None = None

    def __init__(self, directory: Path) -> None:
        # Default settings: fsync, synchronous_commit and full_page_writes are on.
        self.server = postgres.Postgres({}, parent=directory)
        version = self.server.execute("SHOW server_version").split()[0]
        self.terms = f"PostgreSQL {version} with its default settings. Files in {directory.name}."

    @contextmanager
    def fresh(self) -> Iterator[str]:
        with self.server.database() as url:
            yield url

    def usage(self, readers: int = 0) -> Usage:
        return usage(self.server, readers)


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Holds a snapshot open, as a backup does, so that vacuum cannot remove dead rows."""
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        yield
        reader.rollback()


def usage(server: postgres.Postgres, readers: int = 0) -> Usage:
    """Waits until all clients except `readers` are gone."""
    seconds = read_server_seconds(server.postmaster)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        while one(connection, OTHERS) > readers:
            pass
        return Usage(seconds, one(connection, LOG), one(connection, COMMITS))


def one(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> float:
    row = connection.execute(statement).fetchone()
    return float(str(row[0])) if row else 0.0
