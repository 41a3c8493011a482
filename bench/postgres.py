"""PostgreSQL as a store that is measured: a private server on a disk, as it is shipped."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.references import postgres_loops
from bench.subjects import Peer, Reference
from bench.usage import Usage, server_seconds
from tests.servers import postgres

LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database"
# A backend tells its numbers when it ends, a moment after its client.
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Postgres:
    """Each run has a database of its own. The server ends with this process."""

    name = "postgres"
    reference: Reference = postgres_loops
    peer: Peer | None = None

    def __init__(self, directory: Path) -> None:
        # No settings of our own: fsync, synchronous_commit and full_page_writes are on.
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
    """Somebody reads for a long time, as a backup does: no row that dies can be removed."""
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        yield
        reader.rollback()


def usage(server: postgres.Postgres, readers: int = 0) -> Usage:
    """All clients but so many readers must be gone, or going."""
    seconds = server_seconds(server.postmaster)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        while one(connection, OTHERS) > readers:
            pass
        return Usage(seconds, one(connection, LOG), one(connection, COMMITS))


def one(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> float:
    row = connection.execute(statement).fetchone()
    return float(str(row[0])) if row else 0.0
