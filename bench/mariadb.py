"""Benchmarks MariaDB: a private server on disk with default settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.references import mariadb_loops
from bench.subjects import Peer, Reference
from bench.usage import Usage, read_server_seconds
from tests.servers import mariadb

USED = """
SELECT variable_value FROM information_schema.global_status
WHERE variable_name IN ('innodb_os_log_written', 'com_commit') ORDER BY variable_name DESC
"""


class MariaDB:
    """Gives each run its own database. The server stops with this process."""

    name = "mariadb"
    reference: Reference = mariadb_loops
    peer: Peer | None = None

    def __init__(self, directory: Path) -> None:
        # Default settings: every commit is flushed, and the doublewrite buffer is on.
        self.server = mariadb.MariaDB({}, parent=directory)
        ((version,),) = self.server.execute("SELECT version()")
        self.terms = (
            f"MariaDB {version} with its default settings, without a log of changes for replicas."
            f" Files in {directory.name}."
        )

    @contextmanager
    def fresh(self) -> Iterator[str]:
        with self.server.database() as url:
            yield url

    def usage(self) -> Usage:
        return usage(self.server)


def usage(server: mariadb.MariaDB) -> Usage:
    (log,), (commits,) = server.execute(USED)
    return Usage(read_server_seconds(server.process.pid), float(str(log)), float(str(commits)))
