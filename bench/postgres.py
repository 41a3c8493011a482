"""PostgreSQL as a store that is measured: a private server on a disk, as it is shipped."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.references import postgres_loops
from bench.subjects import Peer, Reference
from tests.servers import postgres


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


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Somebody reads for a long time, as a backup does: no row that dies can be removed."""
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        yield
        reader.rollback()
